//! When upstream is expected to change. Boundaries are not redrawn at any moment: they follow releases, censuses and
//! laws. Inside such windows a source is looked at as its plan says, outside them rarely or not at all, and what
//! comes at another time than expected, or does not come, is said.

mod cron;
mod timing;
mod trigger;
mod window;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use cron::{CRON_CHARS_MAX, Cron};
pub use timing::{Missed, Seen, Timing};
pub use trigger::{FOR_S, Trigger, TriggerKind, YEARS, YEARS_MAX};
pub use window::{DAY_MS, Window};

use crate::time::Timestamp;

/// Most triggers of one source.
pub const TRIGGERS_MAX: usize = 32;
/// The longest time between two looks outside the windows: ten years.
const OUTSIDE_S_MAX: u64 = 10 * 366 * 24 * 60 * 60;

/// When a source is expected to change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Calendar {
    /// What makes it change; the windows of all of them count.
    pub triggers: Vec<Trigger>,
    /// How often to look outside the windows.
    #[serde(default, skip_serializing_if = "Outside::is_never")]
    pub outside: Outside,
}

/// How often to look outside the windows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Outside {
    /// Not at all; webhooks and `tidemark check` still do.
    #[default]
    Never,
    /// Every so many seconds.
    EveryS(u64),
}

impl Outside {
    fn is_never(&self) -> bool {
        matches!(self, Outside::Never)
    }
}

impl Calendar {
    /// Is there any window at all? A source that changes on request only is never early or late.
    pub fn has_windows(&self) -> bool {
        self.triggers.iter().any(|trigger| trigger.kind() != TriggerKind::Manual)
    }

    /// The window that is open at `moment`; of several the one that ends first.
    pub fn open_at(&self, moment: Timestamp) -> Option<Window> {
        let open = self.triggers.iter().filter_map(|trigger| trigger.ending_after(moment)).filter(|window| window.contains(moment));
        open.min_by_key(|window| window.end)
    }

    /// The first window that opens after `moment`.
    pub fn opening_after(&self, moment: Timestamp) -> Option<Window> {
        self.triggers.iter().filter_map(|trigger| trigger.opening_after(moment)).min()
    }

    /// Is any window open during this interval?
    pub fn touches(&self, interval: &Window) -> bool {
        self.triggers.iter().filter_map(|trigger| trigger.ending_after(interval.start)).any(|window| window.overlaps(interval))
    }

    /// Is one window open during all of this interval?
    pub fn covers(&self, interval: &Window) -> bool {
        let mut windows = self.triggers.iter().filter_map(|trigger| trigger.ending_after(interval.start));
        windows.any(|window| window.start <= interval.start && interval.end <= window.end)
    }

    /// The windows of this interval with what opens them, in order; `limit` of each trigger at the most. Were there
    /// more?
    pub fn windows_in(&self, interval: &Window, limit: usize) -> (Vec<(TriggerKind, Window)>, bool) {
        let (mut found, mut more) = (Vec::new(), false);
        for trigger in &self.triggers {
            let mut next = trigger.ending_after(interval.start);
            let mut taken = 0;
            while let Some(window) = next.filter(|window| window.overlaps(interval)) {
                if taken == limit {
                    more = true;
                    break;
                }
                found.push((trigger.kind(), window));
                taken += 1;
                next = trigger.opening_after(window.start);
            }
        }
        found.sort_by_key(|(kind, window)| (*window, *kind));
        (found, more)
    }

    /// Everything that is wrong with it.
    pub(crate) fn wrongs(&self) -> Vec<String> {
        let mut wrong: Vec<String> = self.triggers.iter().flat_map(Trigger::wrongs).collect();
        if self.triggers.is_empty() || self.triggers.len() > TRIGGERS_MAX {
            wrong.push(format!("`calendar` lists 1 to {TRIGGERS_MAX} triggers, not {}", self.triggers.len()));
        }
        if let Outside::EveryS(every_s) = self.outside
            && !(1..=OUTSIDE_S_MAX).contains(&every_s)
        {
            wrong.push(format!("`outside` is `never` or {{ every_s: N }} with N from 1 to {OUTSIDE_S_MAX}, not {every_s}"));
        }
        wrong.into_iter().map(|reason| format!("calendar: {reason}")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calendar(json: &str) -> Calendar {
        serde_json::from_str(json).unwrap()
    }

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    const BOTH: &str = r#"{"triggers":[{"type":"annual","month":7},{"type":"census","year":2030},{"type":"manual"}]}"#;

    #[test]
    fn the_windows_of_all_triggers_count() {
        let both = calendar(BOTH);
        let table = [
            ("2029-07-15T00:00:00Z", Some("2029-08-01"), "2030-01-01"),
            ("2030-03-01T00:00:00Z", Some("2031-01-01"), "2030-07-01"),
            ("2030-07-15T00:00:00Z", Some("2030-08-01"), "2031-07-01"),
            ("2031-03-01T00:00:00Z", None, "2031-07-01"),
        ];
        for (moment, ends, opens) in table {
            assert_eq!(both.open_at(at(moment)).map(|window| window.end.date()).as_deref(), ends, "{moment}");
            assert_eq!(both.opening_after(at(moment)).unwrap().start.date(), opens, "{moment}");
        }
        assert!(both.has_windows());
        let manual = calendar(r#"{"triggers":[{"type":"manual"}]}"#);
        assert!(!manual.has_windows() && manual.opening_after(at("2025-01-01T00:00:00Z")).is_none());
    }

    #[test]
    fn a_year_shows_its_windows_and_no_more_than_the_limit() {
        let year = Window::years(2030, 2030).unwrap();
        let (windows, more) = calendar(BOTH).windows_in(&year, 10);
        let said: Vec<String> = windows.iter().map(|(kind, window)| format!("{} {}", kind.as_str(), window.start.date())).collect();
        assert_eq!((said, more), (vec!["census 2030-01-01".to_owned(), "annual 2030-07-01".to_owned()], false));
        let minutely = calendar(r#"{"triggers":[{"type":"cron","at":"* * * * *"}]}"#);
        let (windows, more) = minutely.windows_in(&year, 10);
        assert_eq!((windows.len(), more), (10, true));
        let winter = calendar(r#"{"triggers":[{"type":"annual","month":12,"months":2}]}"#);
        let months: Vec<bool> = (1..=12).map(|month| winter.touches(&Window::months(2030, month, 1).unwrap())).collect();
        assert_eq!(months.iter().filter(|touched| **touched).count(), 2, "January of the window before, and December");
        assert!(months[0] && months[11]);
        let january = Window::months(2030, 1, 1).unwrap();
        assert!(winter.covers(&january) && !winter.covers(&year) && minutely.touches(&january) && !minutely.covers(&january));
    }

    #[test]
    fn outside_is_never_or_a_number_of_seconds() {
        let rarely = calendar(r#"{"triggers":[{"type":"manual"}],"outside":{"every_s":604800}}"#);
        assert_eq!(rarely.outside, Outside::EveryS(604_800));
        assert_eq!(serde_json::to_string(&rarely).unwrap(), r#"{"triggers":[{"type":"manual"}],"outside":{"every_s":604800}}"#);
        assert_eq!(calendar(r#"{"triggers":[{"type":"manual"}],"outside":"never"}"#).outside, Outside::Never);
        assert_eq!(calendar(r#"{"triggers":[{"type":"manual"}]}"#).outside, Outside::Never);
    }

    #[test]
    fn every_mistake_is_named_at_once() {
        let bad = calendar(r#"{"triggers":[{"type":"annual","month":13},{"type":"census","year":3}],"outside":{"every_s":0}}"#);
        let said = bad.wrongs().join("; ");
        for part in ["not 13", "the year 3 ", "`outside`"] {
            assert!(said.contains(part), "{part}: {said}");
        }
        assert!(calendar(r#"{"triggers":[]}"#).wrongs().join(";").contains("1 to 32 triggers"));
    }
}
