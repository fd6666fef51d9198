//! What makes upstream change, and the windows in which it does.

use std::fmt;
use std::ops::RangeInclusive;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::cron::Cron;
use super::window::{DAY_MS, Window};
use crate::time::Timestamp;

/// Years that a trigger may name.
pub const YEARS: RangeInclusive<i16> = 1970..=9998;
/// Most years of one trigger.
pub const YEARS_MAX: usize = 64;
/// How long a window of a cron expression may be: a minute to a leap year.
pub const FOR_S: RangeInclusive<u64> = 60..=366 * 24 * 60 * 60;
/// How long it is, unless the trigger says otherwise.
const FOR_S_DEFAULT: u64 = 60 * 60;

const MONTH_NAMES: [&str; 12] =
    ["January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December"];

/// What makes upstream change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum Trigger {
    /// A publisher's yearly release.
    Annual {
        /// The month in which it comes, 1 to 12.
        month: i8,
        /// Over how many months it may come; one if left out.
        #[serde(default = "one_month", skip_serializing_if = "is_one_month")]
        months: i8,
    },
    /// New districts. Years that follow each other are one window: districts are drawn once in it.
    Redistricting {
        /// The years in which they are drawn.
        years: Vec<i16>,
    },
    /// A census and what is published of it.
    Census {
        /// Its year.
        year: i16,
    },
    /// Nothing but a person's request.
    Manual {},
    /// From every moment that a cron expression names.
    Cron {
        /// Minute, hour, day of the month, month, day of the week; UTC.
        at: Cron,
        /// How long a change is expected from then on; an hour if left out.
        #[serde(default = "default_for_s", skip_serializing_if = "is_default_for_s")]
        for_s: u64,
    },
}

/// The kinds of triggers, as people name them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TriggerKind {
    /// A yearly release.
    Annual,
    /// New districts.
    Redistricting,
    /// A census.
    Census,
    /// A person's request.
    Manual,
    /// A cron expression.
    Cron,
}

impl TriggerKind {
    /// All of them.
    pub const ALL: [TriggerKind; 5] =
        [TriggerKind::Annual, TriggerKind::Redistricting, TriggerKind::Census, TriggerKind::Manual, TriggerKind::Cron];

    /// Its name in the sources file.
    pub fn as_str(self) -> &'static str {
        match self {
            TriggerKind::Annual => "annual",
            TriggerKind::Redistricting => "redistricting",
            TriggerKind::Census => "census",
            TriggerKind::Manual => "manual",
            TriggerKind::Cron => "cron",
        }
    }
}

impl Trigger {
    /// Which kind it is.
    pub fn kind(&self) -> TriggerKind {
        match self {
            Trigger::Annual { .. } => TriggerKind::Annual,
            Trigger::Redistricting { .. } => TriggerKind::Redistricting,
            Trigger::Census { .. } => TriggerKind::Census,
            Trigger::Manual {} => TriggerKind::Manual,
            Trigger::Cron { .. } => TriggerKind::Cron,
        }
    }

    /// The first window that opens after `moment`.
    pub fn opening_after(&self, moment: Timestamp) -> Option<Window> {
        match self {
            Trigger::Cron { at, for_s } => at.next_after(moment).map(|start| lasting(start, *for_s)),
            Trigger::Annual { .. } | Trigger::Redistricting { .. } | Trigger::Census { .. } | Trigger::Manual {} => {
                self.yearly(moment).into_iter().find(|window| window.start > moment)
            }
        }
    }

    /// The first window that ends after `moment`: the one that is open then, or else the next.
    pub fn ending_after(&self, moment: Timestamp) -> Option<Window> {
        match self {
            Trigger::Cron { at, for_s } => {
                let window = lasting(at.next_after(moment.plus_ms(-length_ms(*for_s)))?, *for_s);
                (window.end > moment).then_some(window)
            }
            Trigger::Annual { .. } | Trigger::Redistricting { .. } | Trigger::Census { .. } | Trigger::Manual {} => {
                self.yearly(moment).into_iter().find(|window| window.end > moment)
            }
        }
    }

    /// How late that which came in one of its windows may be noticed; the same for all of them.
    pub fn grace_ms(&self) -> i64 {
        match self {
            Trigger::Cron { for_s, .. } => lasting(Timestamp::default(), *for_s).grace_ms(),
            Trigger::Annual { .. } | Trigger::Redistricting { .. } | Trigger::Census { .. } | Trigger::Manual {} => DAY_MS,
        }
    }

    /// Windows that follow the calendar, oldest first: all that are listed, or those around `moment`.
    fn yearly(&self, moment: Timestamp) -> Vec<Window> {
        match self {
            Trigger::Annual { month, months } => {
                // A window of last year may be open still, and this year's may have ended.
                let year = moment.year();
                (year - 1..=year.saturating_add(1)).filter_map(|year| Window::months(year, *month, *months)).collect()
            }
            Trigger::Redistricting { years } => runs(years).into_iter().filter_map(|(first, last)| Window::years(first, last)).collect(),
            Trigger::Census { year } => Window::years(*year, *year).into_iter().collect(),
            Trigger::Manual {} | Trigger::Cron { .. } => Vec::new(),
        }
    }

    /// Everything that is wrong with it.
    pub(super) fn wrongs(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        let year_outside = |year: i16| format!("the year {year} is not between {} and {}", YEARS.start(), YEARS.end());
        match self {
            Trigger::Annual { month, months } => {
                if !(1..=12).contains(month) {
                    wrong.push(format!("the month of an annual trigger is 1 to 12, not {month}"));
                }
                if !(1..=12).contains(months) {
                    wrong.push(format!("`months` of an annual trigger is 1 to 12, not {months}"));
                }
            }
            Trigger::Redistricting { years } => {
                if years.is_empty() || years.len() > YEARS_MAX {
                    wrong.push(format!("a redistricting trigger lists 1 to {YEARS_MAX} years, not {}", years.len()));
                }
                wrong.extend(years.iter().filter(|year| !YEARS.contains(year)).map(|year| year_outside(*year)));
            }
            Trigger::Census { year } => wrong.extend((!YEARS.contains(year)).then(|| year_outside(*year))),
            Trigger::Manual {} => {}
            Trigger::Cron { for_s, .. } => {
                if !FOR_S.contains(for_s) {
                    wrong.push(format!("`for_s` of a cron trigger is {} to {}, not {for_s}", FOR_S.start(), FOR_S.end()));
                }
            }
        }
        wrong
    }
}

impl fmt::Display for Trigger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |month: i8| usize::try_from(month - 1).ok().and_then(|place| MONTH_NAMES.get(place)).copied().unwrap_or("no month");
        match self {
            Trigger::Annual { month, months: 1 } => write!(f, "annual, in {}", name(*month)),
            Trigger::Annual { month, months } => write!(f, "annual, {} to {}", name(*month), name((month - 1 + months - 1) % 12 + 1)),
            Trigger::Redistricting { years } => {
                let runs = runs(years).into_iter();
                let words = runs.map(|(first, last)| if first == last { first.to_string() } else { format!("{first}-{last}") });
                write!(f, "redistricting, {}", words.collect::<Vec<_>>().join(", "))
            }
            Trigger::Census { year } => write!(f, "census, {year}"),
            Trigger::Manual {} => f.write_str("manual"),
            Trigger::Cron { at, for_s } => write!(f, "cron, {at} for {for_s} s"),
        }
    }
}

/// Years that follow each other, as pairs of the first and the last.
fn runs(years: &[i16]) -> Vec<(i16, i16)> {
    let mut sorted = years.to_vec();
    sorted.sort_unstable();
    let mut runs: Vec<(i16, i16)> = Vec::new();
    for year in sorted {
        match runs.last_mut() {
            Some((_, last)) if year <= last.saturating_add(1) => *last = year,
            Some(_) | None => runs.push((year, year)),
        }
    }
    runs
}

fn lasting(start: Timestamp, for_s: u64) -> Window {
    Window { start, end: start.plus_ms(length_ms(for_s)) }
}

fn length_ms(for_s: u64) -> i64 {
    i64::try_from(for_s.saturating_mul(1000)).unwrap_or(i64::MAX)
}

fn one_month() -> i8 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde asks for")]
fn is_one_month(months: &i8) -> bool {
    *months == 1
}

fn default_for_s() -> u64 {
    FOR_S_DEFAULT
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde asks for")]
fn is_default_for_s(for_s: &u64) -> bool {
    *for_s == FOR_S_DEFAULT
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trigger(json: &str) -> Trigger {
        serde_json::from_str(json).unwrap()
    }

    fn said(window: Option<Window>) -> String {
        let short = |moment: Timestamp| moment.to_string().trim_end_matches("T00:00:00Z").to_owned();
        window.map_or("none".into(), |window| format!("{}..{}", short(window.start), short(window.end)))
    }

    const JULY: &str = r#"{"type":"annual","month":7}"#;
    const WINTER: &str = r#"{"type":"annual","month":11,"months":4}"#;
    const DISTRICTS: &str = r#"{"type":"redistricting","years":[2032,2021,2022,2031,2022,2045]}"#;
    const CENSUS: &str = r#"{"type":"census","year":2030}"#;
    const MONDAYS: &str = r#"{"type":"cron","at":"0 6 * * 1","for_s":86400}"#;
    const NEW_YEAR: &str = r#"{"type":"cron","at":"0 12 31 12 *","for_s":86400}"#;

    #[test]
    fn the_window_that_is_open_or_comes_next() {
        let table = [
            (JULY, "2025-06-30T23:59:59.999Z", "2025-07-01..2025-08-01"),
            (JULY, "2025-07-01T00:00:00Z", "2025-07-01..2025-08-01"),
            (JULY, "2025-07-31T23:59:59.999Z", "2025-07-01..2025-08-01"),
            (JULY, "2025-08-01T00:00:00Z", "2026-07-01..2026-08-01"),
            (WINTER, "2025-10-31T00:00:00Z", "2025-11-01..2026-03-01"),
            (WINTER, "2026-01-01T00:00:00Z", "2025-11-01..2026-03-01"),
            (WINTER, "2024-02-29T23:59:59Z", "2023-11-01..2024-03-01"),
            (WINTER, "2026-03-01T00:00:00Z", "2026-11-01..2027-03-01"),
            (DISTRICTS, "1999-12-31T00:00:00Z", "2021-01-01..2023-01-01"),
            (DISTRICTS, "2022-01-01T00:00:00Z", "2021-01-01..2023-01-01"),
            (DISTRICTS, "2023-01-01T00:00:00Z", "2031-01-01..2033-01-01"),
            (DISTRICTS, "2033-01-01T00:00:00Z", "2045-01-01..2046-01-01"),
            (DISTRICTS, "2046-01-01T00:00:00Z", "none"),
            (CENSUS, "2020-04-01T00:00:00Z", "2030-01-01..2031-01-01"),
            (CENSUS, "2030-12-31T23:59:59Z", "2030-01-01..2031-01-01"),
            (CENSUS, "2031-01-01T00:00:00Z", "none"),
            (MONDAYS, "2025-07-08T05:59:59Z", "2025-07-07T06:00:00Z..2025-07-08T06:00:00Z"),
            (MONDAYS, "2025-07-08T06:00:00Z", "2025-07-14T06:00:00Z..2025-07-15T06:00:00Z"),
            (NEW_YEAR, "2026-01-01T11:59:59Z", "2025-12-31T12:00:00Z..2026-01-01T12:00:00Z"),
            (r#"{"type":"manual"}"#, "2025-07-01T00:00:00Z", "none"),
        ];
        for (json, moment, expected) in table {
            assert_eq!(said(trigger(json).ending_after(moment.parse().unwrap())), expected, "{json} at {moment}");
        }
    }

    #[test]
    fn the_next_window_opens_later_even_while_one_is_open() {
        let table = [
            (JULY, "2025-06-30T23:59:59.999Z", "2025-07-01..2025-08-01"),
            (JULY, "2025-07-01T00:00:00Z", "2026-07-01..2026-08-01"),
            (WINTER, "2026-01-15T00:00:00Z", "2026-11-01..2027-03-01"),
            (DISTRICTS, "2021-01-01T00:00:00Z", "2031-01-01..2033-01-01"),
            (CENSUS, "2030-01-01T00:00:00Z", "none"),
            (MONDAYS, "2025-07-07T06:00:00Z", "2025-07-14T06:00:00Z..2025-07-15T06:00:00Z"),
        ];
        for (json, moment, expected) in table {
            assert_eq!(said(trigger(json).opening_after(moment.parse().unwrap())), expected, "{json} after {moment}");
        }
        for json in [JULY, WINTER, DISTRICTS, CENSUS, MONDAYS, NEW_YEAR] {
            for moment in [Timestamp::default(), Timestamp::never()] {
                let (open, next) = (trigger(json).ending_after(moment), trigger(json).opening_after(moment));
                assert!(open.is_none_or(|window| window.end > moment) && next.is_none_or(|window| window.start > moment), "{json}");
            }
        }
    }

    #[test]
    fn every_trigger_survives_its_text_and_says_what_it_is() {
        let table = [
            (JULY, "annual, in July"),
            (WINTER, "annual, November to February"),
            (r#"{"type":"redistricting","years":[2021,2022,2031]}"#, "redistricting, 2021-2022, 2031"),
            (CENSUS, "census, 2030"),
            (r#"{"type":"manual"}"#, "manual"),
            (MONDAYS, "cron, 0 6 * * 1 for 86400 s"),
            (r#"{"type":"cron","at":"0 6 * * 1"}"#, "cron, 0 6 * * 1 for 3600 s"),
        ];
        for (json, words) in table {
            assert_eq!(serde_json::to_string(&trigger(json)).unwrap(), json);
            assert_eq!(trigger(json).to_string(), words);
            assert!(TriggerKind::ALL.contains(&trigger(json).kind()) && words.starts_with(trigger(json).kind().as_str()));
        }
    }

    #[test]
    fn mistakes_are_named() {
        let table = [
            (r#"{"type":"annual","month":13}"#, "1 to 12, not 13"),
            (r#"{"type":"annual","month":0}"#, "1 to 12, not 0"),
            (r#"{"type":"annual","month":7,"months":13}"#, "`months`"),
            (r#"{"type":"redistricting","years":[]}"#, "1 to 64 years"),
            (r#"{"type":"redistricting","years":[2031,203]}"#, "the year 203 "),
            (r#"{"type":"census","year":1969}"#, "the year 1969 "),
            (r#"{"type":"cron","at":"0 6 * * *","for_s":0}"#, "`for_s`"),
        ];
        for (json, says) in table {
            assert!(trigger(json).wrongs().join(";").contains(says), "{json}: {:?}", trigger(json).wrongs());
        }
        let refused = [
            (r#"{"type":"anual","month":7}"#, "unknown variant `anual`"),
            (r#"{"type":"annual"}"#, "missing field `month`"),
            (r#"{"type":"annual","month":7,"year":2030}"#, "unknown field `year`"),
            (r#"{"type":"manual","month":7}"#, "unknown field `month`"),
            (r#"{"type":"census","years":[2030]}"#, "unknown field `years`"),
            (r#"{"type":"cron","at":"0 25 * * *"}"#, "hour `25`"),
        ];
        for (json, says) in refused {
            let error = serde_json::from_str::<Trigger>(json).unwrap_err().to_string();
            assert!(error.contains(says), "{json}: {error}");
        }
    }
}
