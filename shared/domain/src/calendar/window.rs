//! An interval of time in which a change is expected, in UTC.

use jiff::civil::Date;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::time::Timestamp;

/// One day.
pub const DAY_MS: i64 = 24 * 60 * 60 * 1000;

/// From `start` until just before `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct Window {
    /// Its first moment.
    pub start: Timestamp,
    /// The first moment after it.
    pub end: Timestamp,
}

impl Window {
    /// Does this moment lie in it?
    pub fn contains(&self, moment: Timestamp) -> bool {
        self.start <= moment && moment < self.end
    }

    /// Do both have a moment in common?
    pub fn overlaps(&self, other: &Window) -> bool {
        self.start < other.end && other.start < self.end
    }

    /// How late that which came in a window may be noticed, and still counts as expected: a tenth of the window, a
    /// day at the most. A look is not made at every moment, and the last one is made when the window has ended.
    pub fn grace_ms(&self) -> i64 {
        i64::try_from(self.end.since_ms(self.start) / 10).unwrap_or(DAY_MS).min(DAY_MS)
    }

    /// `count` months from the beginning of one; `None` where no calendar reaches.
    pub fn months(year: i16, month: i8, count: i8) -> Option<Window> {
        let first = Date::new(year, month, 1).ok()?;
        let months = i16::from(month) - 1 + i16::from(count);
        let after = Date::new(year.checked_add(months / 12)?, i8::try_from(months % 12 + 1).ok()?, 1).ok()?;
        Some(Window { start: Timestamp::midnight(first), end: Timestamp::midnight(after) })
    }

    /// Whole years, both included; `None` where no calendar reaches.
    pub fn years(first: i16, last: i16) -> Option<Window> {
        let (start, end) = (Date::new(first, 1, 1).ok()?, Date::new(last.checked_add(1)?, 1, 1).ok()?);
        Some(Window { start: Timestamp::midnight(start), end: Timestamp::midnight(end) })
    }

    /// This window in `count` equal parts.
    pub fn parts(&self, count: i64) -> impl Iterator<Item = Window> + use<> {
        let (start, length_ms) = (self.start, i64::try_from(self.end.since_ms(self.start)).unwrap_or(i64::MAX));
        let at = move |part: i64| start.plus_ms(length_ms / count * part + length_ms % count * part / count);
        (0..count).map(move |part| Window { start: at(part), end: at(part + 1) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(window: Option<Window>) -> String {
        window.map_or("none".into(), |window| format!("{}..{}", window.start, window.end))
    }

    #[test]
    fn months_end_where_the_next_one_begins_in_leap_years_and_over_a_new_year() {
        let table = [
            ((2024, 2, 1), "2024-02-01T00:00:00Z..2024-03-01T00:00:00Z"),
            ((2025, 2, 1), "2025-02-01T00:00:00Z..2025-03-01T00:00:00Z"),
            ((2025, 12, 1), "2025-12-01T00:00:00Z..2026-01-01T00:00:00Z"),
            ((2025, 11, 4), "2025-11-01T00:00:00Z..2026-03-01T00:00:00Z"),
            ((2025, 1, 12), "2025-01-01T00:00:00Z..2026-01-01T00:00:00Z"),
            ((2025, 13, 1), "none"),
            ((9999, 12, 1), "none"),
        ];
        for ((year, month, count), expected) in table {
            assert_eq!(said(Window::months(year, month, count)), expected);
        }
        let days = |year| Window::months(year, 2, 1).map(|window| window.end.since_ms(window.start) / DAY_MS as u64);
        assert_eq!([2000, 2024, 2025, 2100].map(days), [29, 29, 28, 28].map(Some));
    }

    #[test]
    fn years_are_whole() {
        assert_eq!(said(Window::years(2021, 2022)), "2021-01-01T00:00:00Z..2023-01-01T00:00:00Z");
        assert_eq!(said(Window::years(9999, 9999)), "none");
    }

    #[test]
    fn parts_meet_and_fill_the_whole() {
        for month in 1..=12 {
            let whole = Window::months(2024, month, 1).unwrap();
            let parts: Vec<Window> = whole.parts(4).collect();
            assert_eq!((parts[0].start, parts[3].end, parts.len()), (whole.start, whole.end, 4));
            assert!(parts.windows(2).all(|two| two[0].end == two[1].start));
        }
    }

    #[test]
    fn the_last_moment_of_a_window_is_the_one_before_its_end() {
        let july = Window::months(2025, 7, 1).unwrap();
        assert!(july.contains(july.start) && july.contains(july.end.plus_ms(-1)));
        assert!(!july.contains(july.end) && !july.contains(july.start.plus_ms(-1)));
        let august = Window::months(2025, 8, 1).unwrap();
        assert!(!july.overlaps(&august) && july.overlaps(&july));
    }
}
