//! When to look next: the adaptive interval of a source's plan, held to its calendar.
//!
//! Inside a window the plan's interval counts; each window begins with the plan's own and ends with one more look,
//! made just after it, so that what came last in it is found. Outside, the calendar says how rarely. All sources
//! with the same window would be due at the same moment: they are spread, by chance drawn from their names.

use crate::backoff::unit_interval_times;
use crate::calendar::{Calendar, Outside, Window};
use crate::ids::SourceId;
use crate::source::PollPlan;
use crate::time::Timestamp;

/// Failed looks in a row that are tried again outside a window, as soon as inside: what closes a window may not be
/// lost to one bad moment, and a source that is down is not asked all year.
const RETRIES_OUTSIDE_MAX: u32 = 5;

/// What decides when a source is looked at.
#[derive(Clone, Copy, Debug)]
pub struct Pace<'a> {
    /// How often.
    pub plan: &'a PollPlan,
    /// When at all.
    pub calendar: Option<&'a Calendar>,
    /// Whose pace it is.
    pub id: &'a SourceId,
}

impl Pace<'_> {
    /// When to look after look number `check`, which succeeded at `now`, and the interval in seconds from there on.
    pub(crate) fn after_look(&self, now: Timestamp, interval_s: u64, check: u64) -> (Timestamp, u64) {
        let (min_s, max_s) = self.plan.bounds_s();
        let interval_s = interval_s.clamp(min_s, max_s);
        let regular = later(now, jittered_ms(interval_s, self.id, check));
        match self.season(now) {
            Season::Always => (regular, interval_s),
            Season::Window(window) => (self.before_it_closes(regular, &window, now), interval_s),
            Season::Outside(calendar) => (self.outside(calendar, now, check), self.plan.every_s.clamp(min_s, max_s)),
        }
    }

    /// When to look after a look that failed at `now`, for which `wait_ms` is the wait after `tries` of them in a row.
    pub(crate) fn after_failure(&self, now: Timestamp, wait_ms: u64, tries: u32, check: u64) -> Timestamp {
        let again = later(now, wait_ms);
        match self.season(now) {
            Season::Always => again,
            Season::Window(window) => self.before_it_closes(again, &window, now),
            Season::Outside(calendar) if tries <= RETRIES_OUTSIDE_MAX => again.min(self.outside(calendar, now, check)),
            Season::Outside(calendar) => self.outside(calendar, now, check),
        }
    }

    fn season(&self, now: Timestamp) -> Season<'_> {
        match self.calendar {
            None => Season::Always,
            Some(calendar) => calendar.open_at(now).map_or(Season::Outside(calendar), Season::Window),
        }
    }

    /// `regular`, or just after the window's end if that comes first; never more often than the plan allows.
    fn before_it_closes(&self, regular: Timestamp, window: &Window, now: Timestamp) -> Timestamp {
        let (min_s, _) = self.plan.bounds_s();
        // In half of the grace, so that what is found is handled in the other half.
        let closing = self.spread(window.end, window.grace_ms() / 2);
        regular.min(closing.max(later(now, min_s.saturating_mul(1000))))
    }

    /// The next window, or the next rare look before it.
    fn outside(&self, calendar: &Calendar, now: Timestamp, check: u64) -> Timestamp {
        let every_ms = i64::try_from(self.plan.every_s.saturating_mul(1000)).unwrap_or(i64::MAX);
        let opening = calendar.opening_after(now).map(|window| self.spread(window.start, window.grace_ms().min(every_ms)));
        let rarely = match calendar.outside {
            Outside::Never => None,
            Outside::EveryS(every_s) => Some(later(now, jittered_ms(every_s, self.id, check))),
        };
        opening.into_iter().chain(rarely).min().unwrap_or(Timestamp::never())
    }

    /// A moment in the `ms_max` after `moment`, always the same for this source.
    fn spread(&self, moment: Timestamp, ms_max: i64) -> Timestamp {
        let ms_max = u64::try_from(ms_max).unwrap_or(0);
        later(moment, unit_interval_times(ms_max, &format!("{}@{moment}", self.id)))
    }
}

/// What a calendar says of a moment.
enum Season<'a> {
    /// There is none.
    Always,
    /// This window is open.
    Window(Window),
    /// No window is.
    Outside(&'a Calendar),
}

fn later(moment: Timestamp, ms: u64) -> Timestamp {
    moment.plus_ms(i64::try_from(ms).unwrap_or(i64::MAX))
}

/// `wait_s` less up to a tenth, so that sources registered together drift apart.
pub(crate) fn jittered_ms(wait_s: u64, id: &SourceId, check: u64) -> u64 {
    let wait_ms = wait_s.saturating_mul(1000);
    wait_ms - unit_interval_times(wait_ms / 10, &format!("{id}#{check}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calendar::DAY_MS;
    use crate::fault::Fault;
    use crate::poll::PollState;

    const DAY_S: u64 = 86_400;
    const DAILY: PollPlan = PollPlan { every_s: DAY_S, min_s: Some(3_600), max_s: Some(10 * DAY_S) };

    fn calendar(outside: &str) -> Calendar {
        serde_json::from_str(&format!(r#"{{"triggers":[{{"type":"annual","month":7}}],"outside":{outside}}}"#)).unwrap()
    }

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn id() -> SourceId {
        "s".parse().unwrap()
    }

    /// Looks that find nothing new from `begin` until `end`, each when it is due.
    fn looks(calendar: Option<&Calendar>, begin: &str, end: &str) -> Vec<Timestamp> {
        let (id, mut now) = (id(), at(begin));
        let pace = Pace { plan: &DAILY, calendar, id: &id };
        let mut state = PollState::starting(&DAILY, now);
        let mut looks = Vec::new();
        while now < at(end) {
            looks.push(now);
            state = state.after_unchanged(&pace, now, 0);
            assert!(state.next_due.since_ms(now) >= 3_240_000, "never more often than the minimum, less its jitter");
            now = state.next_due;
        }
        looks
    }

    #[test]
    fn without_looks_outside_a_year_has_its_windows_only() {
        let years = looks(Some(&calendar(r#""never""#)), "2025-03-01T00:00:00Z", "2028-01-01T00:00:00Z");
        assert_eq!(years[0], at("2025-03-01T00:00:00Z"), "the first look is made at once");
        let rest = &years[1..];
        for year in 2025..2028 {
            let july = Window::months(year, 7, 1).unwrap();
            let inside: Vec<&Timestamp> = rest.iter().filter(|look| july.contains(**look)).collect();
            let closing: Vec<&Timestamp> = rest.iter().filter(|look| look.year() == year && **look >= july.end).collect();
            assert!(inside.len() >= 5, "{year}: {inside:?}");
            assert!(inside[0].since_ms(july.start) <= DAY_MS as u64, "the window is not left waiting");
            assert_eq!(closing.len(), 1, "one look closes the window: {closing:?}");
            assert!(closing[0].since_ms(july.end) <= DAY_MS as u64 / 2);
            let before = rest.iter().filter(|look| look.year() == year && **look < july.start).count();
            assert_eq!(before, 0, "{year}");
        }
    }

    #[test]
    fn each_window_begins_with_the_plans_own_interval() {
        let years = looks(Some(&calendar(r#""never""#)), "2025-03-01T00:00:00Z", "2027-08-10T00:00:00Z");
        for year in 2025..2028 {
            let july = Window::months(year, 7, 1).unwrap();
            let inside: Vec<&Timestamp> = years.iter().filter(|look| july.contains(**look)).collect();
            let first_s = inside[1].since_ms(*inside[0]) / 1000;
            assert!((DAY_S * 9 / 8..=DAY_S * 5 / 4).contains(&first_s), "{first_s}");
        }
    }

    #[test]
    fn outside_a_source_is_looked_at_as_rarely_as_it_says() {
        let monthly = calendar(&format!(r#"{{"every_s":{}}}"#, 30 * DAY_S));
        let autumn = looks(Some(&monthly), "2025-08-05T00:00:00Z", "2026-07-01T00:00:00Z");
        for two in autumn.windows(2) {
            let days = two[1].since_ms(two[0]) / 1000 / DAY_S;
            assert!((26..=30).contains(&days), "{days}");
        }
        assert!((11..=13).contains(&autumn.len()), "{}", autumn.len());
        let last = looks(Some(&monthly), "2026-06-28T00:00:00Z", "2026-07-03T00:00:00Z");
        assert!(last.len() >= 2 && last[1] < at("2026-07-02T00:00:00Z"), "a rare look does not delay the window: {last:?}");
    }

    #[test]
    fn a_source_without_a_calendar_is_looked_at_as_before() {
        let looked = looks(None, "2025-01-01T00:00:00Z", "2025-03-01T00:00:00Z");
        let (id, now) = (id(), looked[3]);
        let regular = later(now, jittered_ms(DAY_S * 5 / 4 * 5 / 4 * 5 / 4 * 5 / 4, &id, 4));
        assert!(looked[4].since_ms(regular) < 10_000 && regular.since_ms(looked[4]) < 10_000, "{} {regular}", looked[4]);
    }

    #[test]
    fn what_is_expected_on_request_only_is_never_due_again() {
        let manual: Calendar = serde_json::from_str(r#"{"triggers":[{"type":"manual"}]}"#).unwrap();
        let past: Calendar = serde_json::from_str(r#"{"triggers":[{"type":"census","year":2020}]}"#).unwrap();
        for calendar in [manual, past] {
            let (id, now) = (id(), at("2025-03-01T00:00:00Z"));
            let pace = Pace { plan: &DAILY, calendar: Some(&calendar), id: &id };
            assert_eq!(PollState::starting(&DAILY, now).after_copy(&pace, now).next_due, Timestamp::never());
        }
    }

    #[test]
    fn a_failed_look_outside_is_repeated_a_few_times_and_then_left_until_the_window() {
        let (id, july) = (id(), calendar(r#""never""#));
        let pace = Pace { plan: &DAILY, calendar: Some(&july), id: &id };
        let mut now = at("2025-08-01T01:00:00Z");
        let mut state = PollState::starting(&DAILY, now);
        for _ in 0..RETRIES_OUTSIDE_MAX {
            state = state.after_failure(&pace, now, Fault::retryable("upstream.status", "503"));
            assert!(state.next_due.since_ms(now) <= 10 * DAY_MS as u64, "{}", state.next_due);
            now = state.next_due;
        }
        let left = state.after_failure(&pace, now, Fault::retryable("upstream.status", "503"));
        assert!(july.open_at(left.next_due).is_some(), "{}", left.next_due);
        let gone = PollState::starting(&DAILY, now).after_failure(&pace, now, Fault::permanent("poll.never_there", "404"));
        assert!(july.open_at(gone.next_due).is_some(), "what stays as it is waits for the window at once");
    }

    #[test]
    fn what_a_server_asks_for_outlasts_the_window() {
        let (id, july) = (id(), calendar(r#""never""#));
        let pace = Pace { plan: &DAILY, calendar: Some(&july), id: &id };
        let now = at("2025-07-31T00:00:00Z");
        let busy = Fault::retryable("upstream.status", "503").after_ms(20 * DAY_MS as u64);
        assert_eq!(PollState::starting(&DAILY, now).after_failure(&pace, now, busy).next_due, now.plus_ms(20 * DAY_MS));
    }

    #[test]
    fn sources_with_the_same_window_are_spread_over_its_first_day() {
        let july = calendar(r#""never""#);
        let now = at("2025-03-01T00:00:00Z");
        let mut hours = [0; 24];
        for n in 0..2_400 {
            let id: SourceId = format!("s{n}").parse().unwrap();
            let pace = Pace { plan: &DAILY, calendar: Some(&july), id: &id };
            let due = PollState::starting(&DAILY, now).after_copy(&pace, now).next_due;
            hours[usize::try_from(due.since_ms(at("2025-07-01T00:00:00Z")) / 3_600_000).unwrap()] += 1;
        }
        assert!(hours.iter().all(|hour| (50..200).contains(hour)), "{hours:?}");
    }
}
