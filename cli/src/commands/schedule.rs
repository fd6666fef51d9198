//! `schedule`: the year on one line a source. A line has 99 columns: the name, twelve months of four cells, a word.

use std::process::ExitCode;

use tidemark_domain::calendar::{Outside, Timing, Window};
use tidemark_domain::{Fault, Timestamp};
use tidemark_pipeline::ports::Clock as _;
use tidemark_pipeline::schedule::{Schedule, SourceYear, schedule as year_of};

use super::{named_source, source_id};
use crate::args::ScheduleArgs;
use crate::node::Node;
use crate::output::{self, Colour};

/// Columns of a source's name.
const NAME_CHARS: usize = 28;
/// Cells of a month: about a week each.
const CELLS_A_MONTH: i64 = 4;
/// The months are named again after so many lines, so that they stay in sight.
const LINES_A_HEADING: usize = 40;
/// Most sources whose trouble is told in full.
const TOLD_MAX: usize = 20;

const OPEN: char = '█';
const PARTLY: char = '▄';
const CLOSED: char = '·';
const NOW_OPEN: char = '▓';
const NOW_CLOSED: char = '│';

pub(crate) async fn schedule(node: &Node, args: &ScheduleArgs, json: bool) -> Result<ExitCode, Fault> {
    let now = node.clock.now();
    let only = match source_id(args.source.as_deref())? {
        Some(id) => Some(named_source(node, id.as_str()).await?.id),
        None => None,
    };
    let schedule = year_of(&node.store, &node.store, only.as_ref(), args.year.unwrap_or(now.year()), now).await?;
    if json {
        return output::json(&schedule).map(|()| ExitCode::SUCCESS);
    }
    picture(&schedule).iter().for_each(|line| output::line(line));
    Ok(ExitCode::SUCCESS)
}

/// The whole answer, line by line.
fn picture(schedule: &Schedule) -> Vec<String> {
    let mut lines = Vec::new();
    let cells = cells(schedule.year);
    for (place, source) in schedule.sources.iter().enumerate() {
        if place % LINES_A_HEADING == 0 {
            lines.extend(heading(schedule, &cells));
        }
        let (word, colour) = state(&source.timing);
        let drawn = format!("{} {} {}", name(source), row(source, &cells, schedule.now), output::coloured(word, colour));
        lines.push(drawn.trim_end().to_owned());
    }
    lines.extend(legend(schedule));
    lines.extend(schedule.sources.iter().flat_map(|source| told(source, schedule.now)).take(TOLD_MAX));
    lines
}

/// The cells of a year, month by month.
fn cells(year: i16) -> Vec<Vec<Window>> {
    (1..=12).filter_map(|month| Window::months(year, month, 1)).map(|month| month.parts(CELLS_A_MONTH).collect()).collect()
}

/// The year and its months, and where in them we are.
fn heading(schedule: &Schedule, cells: &[Vec<Window>]) -> Vec<String> {
    const MONTHS: &str = "Jan  Feb  Mar  Apr  May  Jun  Jul  Aug  Sep  Oct  Nov  Dec";
    let mut lines = vec![format!("{:NAME_CHARS$} {MONTHS}", schedule.year)];
    let place = cells.iter().flatten().position(|cell| cell.contains(schedule.now));
    if let Some(place) = place {
        let month = place / CELLS_A_MONTH as usize;
        lines.push(format!("{:width$}▼ {}", "", schedule.now.date(), width = NAME_CHARS + 1 + place + month));
    }
    lines
}

fn name(source: &SourceYear) -> String {
    let id = source.id.as_str();
    let short: String = if id.chars().count() <= NAME_CHARS { id.into() } else { id.chars().take(NAME_CHARS - 1).chain(['…']).collect() };
    format!("{short:NAME_CHARS$}")
}

fn row(source: &SourceYear, cells: &[Vec<Window>], now: Timestamp) -> String {
    let cell = |cell: &Window| match (source.calendar.touches(cell), cell.contains(now)) {
        (true, true) => NOW_OPEN,
        (true, false) if source.calendar.covers(cell) => OPEN,
        (true, false) => PARTLY,
        (false, true) => NOW_CLOSED,
        (false, false) => CLOSED,
    };
    cells.iter().map(|month| month.iter().map(cell).collect::<String>()).collect::<Vec<_>>().join(" ")
}

/// The one word for how a source stands.
fn state(timing: &Timing) -> (&'static str, Colour) {
    match timing {
        Timing { overdue: Some(_), .. } => ("overdue", Colour::Bad),
        Timing { unexpected: Some(_), .. } => ("unexpected", Colour::Odd),
        Timing { open: Some(_), .. } => ("open", Colour::Good),
        Timing { .. } => ("", Colour::Dim),
    }
}

fn legend(schedule: &Schedule) -> Vec<String> {
    let without = output::count(schedule.without_calendar as u64, "source has", "sources have");
    if schedule.sources.is_empty() {
        return vec![format!("No source has a calendar: {without} none. Add `calendar:` to one in the sources file, and apply it.")];
    }
    let mut lines = vec![String::new(), format!("{OPEN} a change is expected   {PARTLY} at times   {NOW_CLOSED} {NOW_OPEN} now   (UTC)")];
    if schedule.without_calendar > 0 {
        lines.push(format!("{without} no calendar and may change at any time."));
    }
    lines
}

/// What is to be said of a source beyond its line.
fn told(source: &SourceYear, now: Timestamp) -> Vec<String> {
    let mut lines = Vec::new();
    let changed = source.changed_at.map_or("it was never seen".into(), |at| format!("last changed {}", at.date()));
    if let Some(missed) = &source.timing.overdue {
        let (word, trigger) = (output::coloured("overdue", Colour::Bad), missed.trigger.as_str());
        let window = format!("{} to {}", missed.window.start.date(), missed.window.end.date());
        lines.push(format!("{word} {}: no change came in its {trigger} window {window}; {changed}", source.id));
    }
    if let Some(at) = source.timing.unexpected {
        let word = output::coloured("unexpected", Colour::Odd);
        lines.push(format!("{word} {}: changed {at}, outside its windows ({})", source.id, source.triggers.join("; ")));
    }
    if lines.is_empty() && source.next_look.is_none() && matches!(source.timing.outside, Outside::Never) && source.timing.next.is_none() {
        let open = source.timing.open.is_some_and(|window| window.contains(now));
        if !open {
            lines.push(format!("{}: no window lies ahead ({}); only `tidemark check {0}` looks", source.id, source.triggers.join("; ")));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidemark_domain::calendar::{Calendar, Seen};

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn source(id: &str, triggers: &str, changed: &str) -> SourceYear {
        let calendar: Calendar = serde_json::from_str(&format!(r#"{{"triggers":[{triggers}]}}"#)).unwrap();
        SourceYear {
            id: id.parse().unwrap(),
            url: None,
            triggers: calendar.triggers.iter().map(ToString::to_string).collect(),
            windows: Vec::new(),
            more_windows: false,
            changed_at: Some(at(changed)),
            next_look: Some(at("2025-09-20T00:00:00Z")),
            timing: calendar.timing(Seen::Changed { at: at(changed) }, at("2025-09-10T00:00:00Z")),
            calendar,
        }
    }

    fn drawn(sources: Vec<SourceYear>, year: i16) -> Vec<String> {
        picture(&Schedule { year, now: at("2025-09-10T00:00:00Z"), sources, without_calendar: 3 })
    }

    #[test]
    fn a_year_is_one_line_a_source_with_its_windows_and_now() {
        let july = r#"{"type":"annual","month":7}"#;
        let lines = drawn(
            vec![
                source("late", july, "2024-07-10T00:00:00Z"),
                source("odd", july, "2025-08-20T00:00:00Z"),
                source("winter", r#"{"type":"annual","month":12,"months":2}"#, "2025-01-20T00:00:00Z"),
                source("first-days", r#"{"type":"cron","at":"0 0 1 * *","for_s":86400}"#, "2025-09-01T00:00:00Z"),
                source("a-name-that-is-far-too-long-for-its-column", r#"{"type":"cron","at":"0 0 10 9 *"}"#, "2025-09-10T00:00:00Z"),
            ],
            2025,
        );
        let expected = [
            "                        2025 Jan  Feb  Mar  Apr  May  Jun  Jul  Aug  Sep  Oct  Nov  Dec",
            "                                                                      ▼ 2025-09-10",
            "late                         ···· ···· ···· ···· ···· ···· ████ ···· ·│·· ···· ···· ···· overdue",
            "odd                          ···· ···· ···· ···· ···· ···· ████ ···· ·│·· ···· ···· ···· unexpected",
            "winter                       ████ ···· ···· ···· ···· ···· ···· ···· ·│·· ···· ···· ████",
            "first-days                   ▄··· ▄··· ▄··· ▄··· ▄··· ▄··· ▄··· ▄··· ▄│·· ▄··· ▄··· ▄···",
            "a-name-that-is-far-too-long… ···· ···· ···· ···· ···· ···· ···· ···· ·▓·· ···· ···· ···· open",
            "",
            "█ a change is expected   ▄ at times   │ ▓ now   (UTC)",
            "3 sources have no calendar and may change at any time.",
            "overdue late: no change came in its annual window 2025-07-01 to 2025-08-01; last changed 2024-07-10",
            "unexpected odd: changed 2025-08-20T00:00:00Z, outside its windows (annual, in July)",
        ];
        assert_eq!(lines, expected);
        assert!(lines[..7].iter().all(|line| line.chars().count() <= 100));
    }

    #[test]
    fn another_year_has_no_now_and_many_sources_see_the_months_again() {
        let census = r#"{"type":"census","year":2030}"#;
        let lines = drawn((0..90).map(|n| source(&format!("s{n}"), census, "2025-01-01T00:00:00Z")).collect(), 2030);
        assert_eq!(lines.iter().filter(|line| line.contains("Jan  Feb")).count(), 3);
        assert!(!lines.iter().any(|line| line.contains('▼') || line.starts_with("s1 ") && !line.contains("████ ████")));
    }

    #[test]
    fn without_a_calendar_there_is_nothing_to_draw() {
        assert_eq!(drawn(Vec::new(), 2025).len(), 1);
    }
}
