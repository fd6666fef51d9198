//! When to look again, and whether a look found something. Pure: the poller only asks and saves.

use serde::{Deserialize, Serialize};

use crate::backoff::unit_interval_times;
use crate::fault::{Fault, FaultKind};
use crate::head::{HeadView, Validators};
use crate::ids::SourceId;
use crate::listing::ListingState;
use crate::pace::{Pace, jittered_ms};
use crate::source::PollPlan;
use crate::step::Observed;
use crate::time::Timestamp;
use crate::trust::{Asked, Trust};

/// What waits for one host is not all due at the moment at which it may be asked again.
const POSTPONED_SPREAD_MS: u64 = 60_000;

/// Failed looks in a row after which somebody is told.
pub const ALARM_FAILURES: u32 = 5;
/// How often they are reminded while it lasts: daily.
pub const REMINDER_MS: u64 = 24 * 3600 * 1000;

/// What somebody is told about a source that fails again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alarm {
    /// That it does.
    Raised,
    /// That it still does.
    Reminder,
}

/// What one conditional request found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Probe {
    /// 304: upstream holds what was last decided.
    NotModified(Observed),
    /// 200: there is something, with these validators.
    Present(Observed),
    /// 404 or 410.
    Missing(Observed),
}

/// What a look means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sighting {
    /// Nothing new.
    Unchanged,
    /// Look closer: it may have changed.
    MaybeChanged(Observed),
    /// Look closer: it may be gone.
    MaybeGone(Observed),
    /// Nothing is there and nothing ever was: a mistake in the registration, or not yet published.
    NeverThere(Observed),
}

/// Compares a look with what was last decided. `present` says whether the head has bytes; `seen` whether
/// there ever was a head.
pub fn sight(probe: Probe, decided: &Validators, present: bool, seen: bool) -> Sighting {
    match probe {
        Probe::NotModified(_) => Sighting::Unchanged,
        // Some servers ignore conditions and answer 200 with the same strong tag.
        Probe::Present(observed) if present && same_version(decided, &observed.validators) => Sighting::Unchanged,
        Probe::Present(observed) => Sighting::MaybeChanged(observed),
        Probe::Missing(observed) if present => Sighting::MaybeGone(observed),
        Probe::Missing(_) if seen => Sighting::Unchanged,
        Probe::Missing(observed) => Sighting::NeverThere(observed),
    }
}

/// Do both name the same version? Tags decide where both have one; times only where neither has.
fn same_version(decided: &Validators, found: &Validators) -> bool {
    match (&decided.etag, &found.etag) {
        (Some(before), Some(after)) => before == after,
        (Some(_), None) | (None, Some(_)) => false,
        (None, None) => decided.last_modified.is_some() && decided.last_modified == found.last_modified,
    }
}

/// What the poller remembers of one source.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PollState {
    /// Seconds between looks, adapted to what they find.
    pub interval_s: u64,
    /// When to look next.
    pub next_due: Timestamp,
    /// When it was last looked at.
    pub last_checked: Option<Timestamp>,
    /// When it was first looked at.
    #[serde(default)]
    pub watched_since: Option<Timestamp>,
    /// When its provider last called, where that is expected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heard_at: Option<Timestamp>,
    /// Failed looks in a row; zero after a good one.
    pub failures_in_a_row: u32,
    /// What went wrong last, while it lasts (I11).
    pub failing: Option<Fault>,
    /// All looks.
    pub checks: u64,
    /// Looks that found nothing new.
    pub unchanged: u64,
    /// Looks that found something to handle.
    pub candidates: u64,
    /// Looks that failed.
    pub failures: u64,
    /// Bytes that did not have to be downloaded again.
    pub bytes_saved: u64,
    /// Not asked since it was due: its host is unwell, and left alone until then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub postponed_until: Option<Timestamp>,
    /// What is remembered of its listing, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listing: Option<Box<ListingState>>,
    /// How far its server's validators are trusted.
    #[serde(default, skip_serializing_if = "Trust::is_plain")]
    pub trust: Trust,
    /// Since when every look fails.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failing_since: Option<Timestamp>,
    /// When somebody was last told that it fails again and again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alarmed_at: Option<Timestamp>,
}

impl PollState {
    /// The state of a source that was never looked at: due at once.
    pub fn starting(plan: &PollPlan, now: Timestamp) -> Self {
        Self { interval_s: plan.every_s, next_due: now, ..Self::default() }
    }

    /// After a look that found nothing new: a quarter longer, up to the maximum.
    #[must_use]
    pub fn after_unchanged(mut self, pace: &Pace<'_>, now: Timestamp, saved_bytes: u64) -> Self {
        self.unchanged += 1;
        self.trust = self.trust.quiet();
        self.bytes_saved = self.bytes_saved.saturating_add(saved_bytes);
        self.interval_s = self.interval_s.saturating_add((self.interval_s / 4).max(1));
        self.looked(pace, now)
    }

    /// After a look that found something beside `view`: half as long, down to the minimum. Where every look finds
    /// something, and it is nothing, a quarter longer.
    #[must_use]
    pub fn after_candidate(mut self, pace: &Pace<'_>, now: Timestamp, view: &HeadView) -> Self {
        self.candidates += 1;
        self.trust = self.trust.found(view);
        self.interval_s = match self.trust.asked {
            Asked::Head | Asked::Get if self.trust.noise == 0 => self.interval_s / 2,
            Asked::Head | Asked::Get => self.interval_s,
            Asked::Content => self.interval_s.saturating_add((self.interval_s / 4).max(1)),
        };
        self.looked(pace, now)
    }

    /// What its server asks for: no look for so long, up to the longest wait of the plan.
    #[must_use]
    pub fn not_before(mut self, pace: &Pace<'_>, now: Timestamp, fresh_s: u64) -> Self {
        let (_, max_s) = pace.plan.bounds_s();
        let floor_ms = i64::try_from(fresh_s.min(max_s).saturating_mul(1000)).unwrap_or(i64::MAX);
        self.next_due = self.next_due.max(now.plus_ms(floor_ms));
        self
    }

    /// What to tell somebody about a source that fails again and again: once it has, and again while it does.
    pub fn alarm(&self, now: Timestamp) -> Option<Alarm> {
        if self.failures_in_a_row < ALARM_FAILURES {
            return None;
        }
        match self.alarmed_at {
            None => Some(Alarm::Raised),
            Some(at) if now.since_ms(at) >= REMINDER_MS => Some(Alarm::Reminder),
            Some(_) => None,
        }
    }

    /// After a look that found what waits to be handled, or was given up for now: nothing new about how often
    /// this source changes.
    #[must_use]
    pub fn after_copy(self, pace: &Pace<'_>, now: Timestamp) -> Self {
        self.looked(pace, now)
    }

    /// After a look that failed: the interval stays, the wait doubles, and what the server asked for is
    /// never shortened.
    #[must_use]
    pub fn after_failure(mut self, pace: &Pace<'_>, now: Timestamp, fault: Fault) -> Self {
        self.checks += 1;
        self.failures += 1;
        self.postponed_until = None;
        self.failures_in_a_row = self.failures_in_a_row.saturating_add(1);
        self.failing_since = self.failing_since.or(Some(now));
        self.last_checked = Some(now);
        self.watched_since = self.watched_since.or(Some(now));
        let (min_s, max_s) = pace.plan.bounds_s();
        let wait_s = min_s.saturating_mul(1 << self.failures_in_a_row.min(20)).min(max_s);
        let (asked_ms, tries) = match fault.kind {
            FaultKind::Retryable { after_ms } => (after_ms.unwrap_or(0), self.failures_in_a_row),
            // It stays as it is until somebody changes something: no reason to hurry.
            FaultKind::Permanent | FaultKind::Rejected => (0, u32::MAX),
        };
        let due = pace.after_failure(now, jittered_ms(wait_s, pace.id, self.checks), tries, self.checks);
        self.next_due = due.max(now.plus_ms(i64::try_from(asked_ms).unwrap_or(i64::MAX)));
        self.failing = Some(fault);
        self
    }

    /// Not looked at: its host is left alone until then. All that wait for it are spread over a minute.
    #[must_use]
    pub fn after_postponement(mut self, id: &SourceId, until: Timestamp) -> Self {
        let spread_ms = unit_interval_times(POSTPONED_SPREAD_MS, &format!("{id}@{until}"));
        self.next_due = until.plus_ms(i64::try_from(spread_ms).unwrap_or(0));
        self.postponed_until = Some(until);
        self
    }

    fn looked(mut self, pace: &Pace<'_>, now: Timestamp) -> Self {
        self.checks += 1;
        self.failures_in_a_row = 0;
        (self.failing, self.failing_since, self.alarmed_at) = (None, None, None);
        self.postponed_until = None;
        self.last_checked = Some(now);
        self.watched_since = self.watched_since.or(Some(now));
        (self.next_due, self.interval_s) = pace.after_look(now, self.interval_s, self.checks);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAN: PollPlan = PollPlan { every_s: 100, min_s: Some(10), max_s: Some(400) };

    fn pace(id: &SourceId) -> Pace<'_> {
        Pace { plan: &PLAN, calendar: None, id }
    }

    fn id() -> SourceId {
        "s".parse().unwrap()
    }

    fn tag(etag: &str) -> Observed {
        Observed { status: 200, validators: Validators { etag: Some(etag.into()), last_modified: None }, ..Observed::default() }
    }

    #[test]
    fn looks_are_compared_with_what_was_decided() {
        let decided = tag("\"a\"").validators;
        let table = [
            (Probe::NotModified(tag("\"a\"")), true, Sighting::Unchanged),
            (Probe::Present(tag("\"a\"")), true, Sighting::Unchanged),
            (Probe::Present(tag("\"b\"")), true, Sighting::MaybeChanged(tag("\"b\""))),
            (Probe::Present(tag("\"a\"")), false, Sighting::MaybeChanged(tag("\"a\""))),
            (Probe::Missing(tag("\"a\"")), true, Sighting::MaybeGone(tag("\"a\""))),
            (Probe::Missing(tag("\"a\"")), false, Sighting::Unchanged),
        ];
        for (probe, present, expected) in table {
            assert_eq!(sight(probe.clone(), &decided, present, true), expected, "{probe:?} {present}");
        }
        let nothing = Validators::default();
        assert_eq!(sight(Probe::Missing(tag("x")), &nothing, false, false), Sighting::NeverThere(tag("x")));
        let no_validators = Observed { status: 200, ..Observed::default() };
        assert_eq!(
            sight(Probe::Present(no_validators.clone()), &nothing, true, true),
            Sighting::MaybeChanged(no_validators),
            "nothing to compare means look"
        );
    }

    #[test]
    fn quiet_sources_are_looked_at_less_and_busy_ones_more() {
        let now = Timestamp::from_millis(0);
        let mut state = PollState::starting(&PLAN, now);
        for expected in [125, 156, 195, 243, 303, 378, 400, 400] {
            state = state.after_unchanged(&pace(&id()), now, 5);
            assert_eq!(state.interval_s, expected);
            let wait_ms = state.next_due.since_ms(now);
            assert!(wait_ms <= expected * 1000 && wait_ms >= expected * 900, "{wait_ms}");
        }
        assert_eq!(state.bytes_saved, 40);
        for expected in [200, 100, 50, 25, 12, 10, 10] {
            state = state.after_candidate(&pace(&id()), now, &HeadView::default());
            assert_eq!(state.interval_s, expected);
        }
    }

    #[test]
    fn what_turns_out_to_be_nothing_again_and_again_is_looked_at_less() {
        let now = Timestamp::from_millis(0);
        let mut state = PollState::starting(&PLAN, now);
        let mut intervals = Vec::new();
        for epoch in 0..9 {
            let view = HeadView { epoch, ..HeadView::default() };
            state.trust = state.trust.judged(&view);
            state = state.after_candidate(&pace(&id()), now, &view);
            intervals.push(state.interval_s);
        }
        assert_eq!(intervals, [50, 50, 50, 25, 25, 25, 31, 38, 47]);
        assert_eq!(state.trust.asked, Asked::Content);
    }

    #[test]
    fn a_server_may_ask_for_a_longer_wait_up_to_the_plans_own() {
        let now = Timestamp::from_millis(0);
        for (fresh_s, expected_s) in [(0, 125), (60, 125), (300, 300), (u64::MAX, 400)] {
            let state = PollState::starting(&PLAN, now).after_unchanged(&pace(&id()), now, 0).not_before(&pace(&id()), now, fresh_s);
            let wait_ms = state.next_due.since_ms(now);
            assert!(wait_ms <= expected_s * 1000 && wait_ms >= expected_s * 900, "{fresh_s}: {wait_ms}");
        }
    }

    #[test]
    fn somebody_is_told_once_that_a_source_keeps_failing_and_reminded_while_it_does() {
        let mut now = Timestamp::from_millis(0);
        let mut state = PollState::starting(&PLAN, now);
        let mut told = Vec::new();
        for look in 1..=60 {
            now = now.plus_ms(3_600_000);
            state = state.after_failure(&pace(&id()), now, Fault::retryable("upstream.status", "503"));
            if let Some(alarm) = state.alarm(now) {
                told.push((look, alarm));
                state.alarmed_at = Some(now);
            }
        }
        assert_eq!(told, [(5, Alarm::Raised), (29, Alarm::Reminder), (53, Alarm::Reminder)]);
        assert_eq!(state.failing_since, Some(Timestamp::from_millis(3_600_000)));
        let well = state.after_unchanged(&pace(&id()), now, 0);
        assert_eq!((well.failing_since, well.alarmed_at, well.alarm(now)), (None, None, None));
    }

    #[test]
    fn a_failing_source_is_a_state_and_keeps_what_the_server_asked_for() {
        let now = Timestamp::from_millis(0);
        let busy = Fault::retryable("upstream.status", "503").after_ms(7_200_000);
        let state = PollState::starting(&PLAN, now).after_failure(&pace(&id()), now, busy.clone());
        assert_eq!(state.next_due.as_millis(), 7_200_000, "Retry-After is never shortened, not even by the maximum");
        assert_eq!((state.failing, state.failures_in_a_row), (Some(busy), 1));
        let again = PollState::starting(&PLAN, now).after_unchanged(&pace(&id()), now, 0);
        assert_eq!(again.failing, None);
    }
}
