//! Did a change come when it was expected? Said from the head alone: what was last committed, and when.

use serde::Serialize;

use super::trigger::{Trigger, TriggerKind};
use super::window::Window;
use super::{Calendar, Outside};
use crate::head::Head;
use crate::time::Timestamp;

/// What is known of an entity's changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// Nothing was ever seen; looked for since then, if at all.
    Never {
        /// The first look.
        watched_since: Option<Timestamp>,
    },
    /// It was seen once: that it is there, not that it changed.
    First {
        /// When.
        at: Timestamp,
    },
    /// It changed.
    Changed {
        /// When it last did.
        at: Timestamp,
    },
}

impl Seen {
    /// What a head says.
    pub fn of(head: Option<&Head>, watched_since: Option<Timestamp>) -> Self {
        match head {
            None => Seen::Never { watched_since },
            Some(head) if head.revision <= 1 => Seen::First { at: head.changed_at },
            Some(head) => Seen::Changed { at: head.changed_at },
        }
    }
}

/// A window that passed without the change that was expected in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Missed {
    /// What should have made it change.
    pub trigger: TriggerKind,
    /// When it should have come.
    pub window: Window,
}

/// How a source stands in its calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Timing {
    /// The window that is open now.
    pub open: Option<Window>,
    /// The next window that opens.
    pub next: Option<Window>,
    /// When the last change came, if it came outside every window.
    pub unexpected: Option<Timestamp>,
    /// The first window since the last change that passed without one.
    pub overdue: Option<Missed>,
    /// How often it is looked at outside the windows.
    pub outside: Outside,
}

impl Calendar {
    /// How a source of which `seen` is known stands at `now`.
    pub fn timing(&self, seen: Seen, now: Timestamp) -> Timing {
        let unexpected = match seen {
            Seen::Changed { at } => (self.has_windows() && !self.expects(at)).then_some(at),
            Seen::First { .. } | Seen::Never { .. } => None,
        };
        Timing {
            open: self.open_at(now),
            next: self.opening_after(now),
            unexpected,
            overdue: self.missed(seen, now),
            outside: self.outside,
        }
    }

    /// Would a change that is noticed at `moment` have come in a window?
    pub fn expects(&self, moment: Timestamp) -> bool {
        let window = |trigger: &Trigger| trigger.ending_after(moment.plus_ms(-trigger.grace_ms()));
        self.triggers.iter().filter_map(window).any(|window| window.start <= moment)
    }

    /// The first window without a change, once nothing that came in it can still be noticed in time.
    fn missed(&self, seen: Seen, now: Timestamp) -> Option<Missed> {
        let expected = |trigger: &Trigger| match seen {
            Seen::First { at } | Seen::Changed { at } => trigger.opening_after(at),
            Seen::Never { watched_since } => trigger.ending_after(watched_since?),
        };
        let missed = |trigger: &Trigger| {
            let window = expected(trigger)?;
            (window.end.plus_ms(trigger.grace_ms()) <= now).then_some(Missed { trigger: trigger.kind(), window })
        };
        self.triggers.iter().filter_map(missed).min_by_key(|missed| missed.window.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    const JULY: &str = r#"{"triggers":[{"type":"annual","month":7}]}"#;
    const WINTER: &str = r#"{"triggers":[{"type":"annual","month":12,"months":2}]}"#;
    const FEBRUARY: &str = r#"{"triggers":[{"type":"annual","month":2}]}"#;
    const DECADES: &str = r#"{"triggers":[{"type":"redistricting","years":[2021,2022,2031,2032]},{"type":"census","year":2030}]}"#;
    const HOURLY: &str = r#"{"triggers":[{"type":"cron","at":"0 6 * * *"}]}"#;
    const MANUAL: &str = r#"{"triggers":[{"type":"manual"}]}"#;

    #[test]
    fn a_change_outside_its_windows_is_unexpected() {
        let table = [
            (JULY, "2025-06-30T23:59:59.999Z", true),
            (JULY, "2025-07-01T00:00:00Z", false),
            (JULY, "2025-07-31T23:59:59.999Z", false),
            // Found by the look that closes the window.
            (JULY, "2025-08-01T00:00:01Z", false),
            (JULY, "2025-08-02T00:00:00Z", true),
            (FEBRUARY, "2024-02-29T12:00:00Z", false),
            (FEBRUARY, "2025-03-02T00:00:00Z", true),
            (WINTER, "2025-12-31T23:59:59Z", false),
            (WINTER, "2026-01-01T00:00:00Z", false),
            (WINTER, "2026-02-02T00:00:00Z", true),
            (DECADES, "2022-12-31T00:00:00Z", false),
            (DECADES, "2025-07-01T00:00:00Z", true),
            (DECADES, "2030-06-01T00:00:00Z", false),
            (DECADES, "2032-02-29T00:00:00Z", false),
            (DECADES, "2041-01-01T00:00:00Z", true),
            (HOURLY, "2025-07-01T06:30:00Z", false),
            (HOURLY, "2025-07-01T07:05:00Z", false),
            (HOURLY, "2025-07-01T07:06:00Z", true),
            (MANUAL, "2025-07-01T00:00:00Z", false),
        ];
        for (json, moment, unexpected) in table {
            let calendar: Calendar = serde_json::from_str(json).unwrap();
            let changed = calendar.timing(Seen::Changed { at: at(moment) }, at(moment));
            assert_eq!(changed.unexpected, unexpected.then(|| at(moment)), "{json} {moment}");
            assert_eq!(calendar.timing(Seen::First { at: at(moment) }, at(moment)).unexpected, None, "to find it is not to see it change");
        }
    }

    #[test]
    fn a_window_that_passes_without_a_change_leaves_it_overdue() {
        let table = [
            // What was last seen, now, and the end of the window that was missed.
            (JULY, "2024-07-20T00:00:00Z", "2025-07-31T23:59:59Z", None),
            (JULY, "2024-07-20T00:00:00Z", "2025-08-01T23:59:59Z", None),
            (JULY, "2024-07-20T00:00:00Z", "2025-08-02T00:00:00Z", Some("2025-08-01")),
            (JULY, "2024-07-20T00:00:00Z", "2027-01-01T00:00:00Z", Some("2025-08-01")),
            (JULY, "2025-07-20T00:00:00Z", "2025-08-02T00:00:00Z", None),
            // It came late: nothing is missing any more.
            (JULY, "2025-09-01T00:00:00Z", "2025-09-02T00:00:00Z", None),
            // It came early: the window passed without one.
            (JULY, "2025-06-30T00:00:00Z", "2025-08-02T00:00:00Z", Some("2025-08-01")),
            (FEBRUARY, "2023-02-10T00:00:00Z", "2024-03-01T12:00:00Z", None),
            (FEBRUARY, "2023-02-10T00:00:00Z", "2024-03-02T00:00:00Z", Some("2024-03-01")),
            (WINTER, "2024-12-15T00:00:00Z", "2026-01-31T00:00:00Z", None),
            (WINTER, "2024-12-15T00:00:00Z", "2026-02-02T00:00:00Z", Some("2026-02-01")),
            (DECADES, "2020-01-01T00:00:00Z", "2022-01-01T00:00:00Z", None),
            (DECADES, "2020-01-01T00:00:00Z", "2023-01-02T00:00:00Z", Some("2023-01-01")),
            (DECADES, "2021-02-01T00:00:00Z", "2030-12-31T00:00:00Z", None),
            (DECADES, "2021-02-01T00:00:00Z", "2031-01-02T00:00:00Z", Some("2031-01-01")),
            (DECADES, "2032-02-01T00:00:00Z", "2099-01-01T00:00:00Z", None),
            (HOURLY, "2025-07-01T06:30:00Z", "2025-07-02T07:05:59Z", None),
            (HOURLY, "2025-07-01T06:30:00Z", "2025-07-02T07:06:00Z", Some("2025-07-02")),
            (MANUAL, "1999-01-01T00:00:00Z", "2025-07-02T07:06:00Z", None),
        ];
        for (json, seen, now, missed) in table {
            let calendar: Calendar = serde_json::from_str(json).unwrap();
            for seen in [Seen::Changed { at: at(seen) }, Seen::First { at: at(seen) }] {
                let overdue = calendar.timing(seen, at(now)).overdue.map(|missed| missed.window.end.date());
                assert_eq!(overdue.as_deref(), missed, "{json} {seen:?} at {now}");
            }
        }
    }

    #[test]
    fn what_was_never_seen_is_overdue_once_a_window_passed_in_which_it_was_looked_for() {
        let july: Calendar = serde_json::from_str(JULY).unwrap();
        let overdue = |since: Option<&str>, now: &str| july.timing(Seen::Never { watched_since: since.map(at) }, at(now)).overdue.is_some();
        assert!(overdue(Some("2025-06-01T00:00:00Z"), "2025-08-02T00:00:00Z"));
        assert!(overdue(Some("2025-07-31T00:00:00Z"), "2025-08-02T00:00:00Z"));
        assert!(!overdue(Some("2025-08-01T00:00:00Z"), "2026-07-31T00:00:00Z"));
        assert!(!overdue(None, "2099-01-01T00:00:00Z"), "nobody has looked");
    }
}
