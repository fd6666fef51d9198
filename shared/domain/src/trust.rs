//! How far a server's validators can be trusted. Some answer HEAD with other tags than GET; some give a new tag to the
//! same bytes every time; some give none. Each look there finds something that turns out to be nothing.
//!
//! That is noticed after a few in a row. Then the source is asked with a conditional GET, which cannot differ from what
//! is fetched; and if that does not help, by its content: every look fetches and compares, and the interval grows as if
//! nothing had been found, since nothing had. What behaves again is trusted again, one step at a time.

use serde::{Deserialize, Serialize};

use crate::head::HeadView;

/// Looks in a row that turned out to be nothing before a server's validators are trusted less.
pub const NOISE_MAX: u32 = 3;
/// Looks in a row that found nothing new before they are trusted more: after that many it is cheap to be wrong again.
pub const QUIET_MIN: u32 = 20;

/// How a source is asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Asked {
    /// With HEAD: its validators behave.
    #[default]
    Head,
    /// With a conditional GET: what HEAD says is not what GET says.
    Get,
    /// By its content: its validators change while the bytes do not, or there are none.
    Content,
}

/// What is remembered of a server's validators.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Trust {
    /// How the source is asked.
    pub asked: Asked,
    /// Looks in a row that turned out to be nothing.
    #[serde(skip_serializing_if = "is_zero")]
    pub noise: u32,
    /// Looks in a row that found nothing new.
    #[serde(skip_serializing_if = "is_zero")]
    pub quiet: u32,
    /// What was known when something was last found, and not judged since: the head's revision and epoch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offered: Option<(u64, u64)>,
}

impl Trust {
    /// Judges what was last found by what became of it.
    #[must_use]
    pub fn judged(mut self, view: &HeadView) -> Self {
        match self.offered {
            Some((revision, _)) if view.revision() != revision => Self { asked: self.asked, ..Self::default() },
            // It was compared with the head, and was the same (I4).
            Some((_, epoch)) if view.epoch > epoch => {
                (self.offered, self.quiet) = (None, 0);
                self.noise = self.noise.saturating_add(1);
                if self.noise >= NOISE_MAX && self.asked != Asked::Content {
                    self.noise = 0;
                    self.asked = if self.asked == Asked::Head { Asked::Get } else { Asked::Content };
                }
                self
            }
            // It waits, or could not be handled.
            Some(_) | None => self,
        }
    }

    /// Something was found beside `view`.
    #[must_use]
    pub fn found(mut self, view: &HeadView) -> Self {
        self.offered = Some((view.revision(), view.epoch));
        self
    }

    /// The validators said that nothing is new.
    #[must_use]
    pub fn quiet(mut self) -> Self {
        (self.noise, self.offered) = (0, None);
        self.quiet = self.quiet.saturating_add(1);
        if self.quiet >= QUIET_MIN && self.asked != Asked::Head {
            self.quiet = 0;
            self.asked = if self.asked == Asked::Content { Asked::Get } else { Asked::Head };
        }
        if self.asked == Asked::Head {
            self.quiet = 0;
        }
        self
    }

    /// Is there nothing to remember?
    pub fn is_plain(&self) -> bool {
        *self == Self::default()
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde asks for")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(epoch: u64) -> HeadView {
        HeadView { epoch, ..HeadView::default() }
    }

    /// A look that finds something, which turns out to be nothing.
    fn noise(trust: Trust, epoch: &mut u64) -> Trust {
        let trust = trust.found(&view(*epoch));
        *epoch += 1;
        trust.judged(&view(*epoch))
    }

    #[test]
    fn validators_that_cry_wolf_are_trusted_less_and_less() {
        let (mut trust, mut epoch) = (Trust::default(), 0);
        let asked: Vec<Asked> = (0..8)
            .map(|_| {
                trust = noise(std::mem::take(&mut trust), &mut epoch);
                trust.asked
            })
            .collect();
        assert_eq!(asked[..2], [Asked::Head; 2]);
        assert_eq!(asked[2..5], [Asked::Get; 3]);
        assert_eq!(asked[5..], [Asked::Content; 3]);
    }

    #[test]
    fn what_behaves_again_is_trusted_again_one_step_at_a_time() {
        let mut trust = Trust { asked: Asked::Content, noise: 9, ..Trust::default() };
        for (looks, asked) in [(QUIET_MIN - 1, Asked::Content), (1, Asked::Get), (QUIET_MIN - 1, Asked::Get), (1, Asked::Head)] {
            trust = (0..looks).fold(trust, |trust, _| trust.quiet());
            assert_eq!(trust.asked, asked);
        }
        assert!(trust.is_plain(), "{trust:?}");
    }

    #[test]
    fn only_what_was_compared_and_was_the_same_is_noise() {
        let found = Trust::default().found(&view(4));
        assert_eq!(found.clone().judged(&view(4)), found, "it still waits, or could not be handled");
        let same = found.clone().judged(&view(5));
        assert_eq!((same.noise, same.offered), (1, None));
        assert_eq!(same.clone().judged(&view(9)), same, "it is judged once");
        let mut epoch = 0;
        let twice = noise(noise(Trust::default(), &mut epoch), &mut epoch);
        assert!(twice.quiet().is_plain(), "not in a row");
    }
}
