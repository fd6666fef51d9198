//! A provider that should call us and does not: its source is polled until it calls again.
//!
//! While deliveries come, each of them puts the next look off; so nothing has to notice that one is missing. Only what could be
//! believed counts: a delivery that is refused says nothing of its provider.

use crate::poll::PollState;
use crate::source::{PollPlan, Source};
use crate::time::Timestamp;

/// A part of the expected time after which a further delivery is worth remembering: not each of a hundred in a second.
const REMEMBERED_PARTS: i64 = 10;

/// What a source expects of its provider.
#[derive(Clone, Copy, Debug)]
pub struct Expected<'a> {
    plan: &'a PollPlan,
    every_ms: i64,
}

impl Source {
    /// How often its provider is expected to call, if that is known and it can be polled otherwise.
    pub fn expected(&self) -> Option<Expected<'_>> {
        let every_s = self.webhook.as_ref()?.expect_every_s?;
        let every_ms = i64::try_from(every_s.saturating_mul(1000)).unwrap_or(i64::MAX);
        Some(Expected { plan: self.poll.as_ref()?, every_ms })
    }
}

impl Expected<'_> {
    /// After a delivery at `now`; `None` if one is remembered that came a moment ago.
    pub fn heard(&self, state: Option<PollState>, now: Timestamp) -> Option<PollState> {
        let state = state.unwrap_or_else(|| PollState::starting(self.plan, now));
        let is_known = state.heard_at.is_some_and(|at| now < at.plus_ms(self.every_ms / REMEMBERED_PARTS));
        // What was never looked at is looked at, whoever calls.
        let next_due = if state.checks == 0 { state.next_due } else { now.plus_ms(self.every_ms) };
        (!is_known).then_some(PollState { heard_at: Some(now), interval_s: self.plan.every_s, next_due, ..state })
    }

    /// After the provider has said that it will call no more: as if it had been quiet for long enough.
    pub fn farewell(&self, state: Option<PollState>, now: Timestamp) -> PollState {
        let state = state.unwrap_or_else(|| PollState::starting(self.plan, now));
        PollState { heard_at: Some(now.plus_ms(self.every_ms.saturating_neg())), next_due: now, ..state }
    }

    /// After a look: the next one is only made if the provider is quiet until then.
    #[must_use]
    pub fn looked(&self, state: PollState) -> PollState {
        let next_due = self.quiet_from(&state).map_or(state.next_due, |from| state.next_due.max(from));
        PollState { next_due, ..state }
    }

    /// Since when the provider is quiet, if it is at `now`.
    pub fn quiet_since(&self, state: &PollState, now: Timestamp) -> Option<Timestamp> {
        self.quiet_from(state).filter(|from| *from <= now)
    }

    /// When the provider counts as quiet. One that has never called has its time from the first look on.
    fn quiet_from(&self, state: &PollState) -> Option<Timestamp> {
        state.heard_at.or(state.watched_since).map(|at| at.plus_ms(self.every_ms))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::webhook::{WebhookPlan, WebhookScheme};

    const HOUR_MS: i64 = 3_600_000;

    fn source() -> Source {
        let mut source = Source::watching("s".parse().unwrap(), "https://example.org/a.json", 600);
        source.webhook = Some(WebhookPlan { expect_every_s: Some(3_600), ..WebhookPlan::new(WebhookScheme::Github, vec!["env:S".into()]) });
        source.checked().unwrap()
    }

    fn at(minutes: i64) -> Timestamp {
        Timestamp::from_millis(minutes * 60_000)
    }

    fn look(source: &Source, state: PollState, now: Timestamp) -> PollState {
        source.expected().unwrap().looked(state.after_unchanged(&source.pace().unwrap(), now, 0))
    }

    #[test]
    fn a_provider_that_calls_is_not_polled_and_one_that_is_quiet_is() {
        let source = source();
        let (expected, plan) = (source.expected().unwrap(), source.poll.unwrap());
        // Registered, looked at once, and given its time.
        let state = look(&source, PollState::starting(&plan, at(0)), at(0));
        assert_eq!((state.next_due, expected.quiet_since(&state, at(59))), (at(60), None));
        let mut state = expected.heard(Some(state), at(30)).unwrap();
        assert_eq!(state.next_due, at(90));
        // A look by hand does not begin to poll.
        state = look(&source, state, at(40));
        assert_eq!((state.next_due, expected.quiet_since(&state, at(89))), (at(90), None));
        // Quiet: from here on as the plan says.
        assert_eq!(expected.quiet_since(&state, at(90)), Some(at(90)));
        state = look(&source, state, at(90));
        let wait_s = state.next_due.since_ms(at(90)) / 1000;
        assert!((500..=1_000).contains(&wait_s), "{wait_s}");
        let then = state.next_due;
        state = look(&source, state, then);
        // It calls again, and is left alone again.
        let back = at(200);
        state = expected.heard(Some(state), back).unwrap();
        assert_eq!((state.next_due, expected.quiet_since(&state, back)), (back.plus_ms(HOUR_MS), None));
        assert_eq!(state.interval_s, 600, "the next silence begins with the plan's own interval");
    }

    #[test]
    fn of_a_burst_of_deliveries_one_is_remembered() {
        let source = source();
        let expected = source.expected().unwrap();
        let state = expected.heard(None, at(0)).unwrap();
        assert_eq!(state.next_due, at(0), "what was never looked at is looked at");
        assert_eq!(expected.heard(Some(state.clone()), at(5)), None);
        assert_eq!(expected.heard(Some(state), at(6)).unwrap().heard_at, Some(at(6)));
    }

    #[test]
    fn who_says_farewell_is_quiet_at_once() {
        let source = source();
        let expected = source.expected().unwrap();
        let state = expected.farewell(expected.heard(None, at(500)), at(501));
        assert_eq!((state.next_due, expected.quiet_since(&state, at(501))), (at(501), Some(at(501))));
    }

    #[test]
    fn nothing_is_expected_of_a_source_that_cannot_be_polled_instead() {
        let mut source = source();
        source.poll = None;
        assert!(source.expected().is_none());
        assert!(source.checked().unwrap_err().message.contains("`expect_every_s`"));
        let mut never = self::source();
        never.webhook.as_mut().unwrap().expect_every_s = Some(0);
        assert!(never.checked().unwrap_err().message.contains("`expect_every_s`"));
    }
}
