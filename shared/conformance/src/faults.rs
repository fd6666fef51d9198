//! Faults by plan: the n-th call of a process is disturbed in one of three ways, every time the same.

use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidemark_domain::Fault;

use crate::gate::{Gate, Gated};

/// A port whose calls are disturbed by plan.
pub type Faulty<P> = Gated<P, FaultPlan>;

/// How a call is disturbed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disturbance {
    /// The process dies before the call has an effect.
    CrashBefore,
    /// The process dies after the effect, without its answer.
    CrashAfter,
    /// The effect happens, the answer is lost, and the process lives.
    LostReply,
}

impl Disturbance {
    /// All of them.
    pub const ALL: [Disturbance; 3] = [Disturbance::CrashBefore, Disturbance::CrashAfter, Disturbance::LostReply];
}

/// Which call is disturbed, and how. Counts the calls of all ports that share it.
#[derive(Debug, Default)]
pub struct FaultPlan(Mutex<Inside>);

#[derive(Debug, Default)]
struct Inside {
    calls: Vec<&'static str>,
    planned: Option<(usize, Disturbance)>,
    crashed: bool,
}

impl FaultPlan {
    /// Nothing is disturbed; calls are counted.
    pub fn none() -> Arc<Self> {
        Arc::default()
    }

    /// Call number `n` (from 0) is disturbed.
    pub fn at(n: usize, disturbance: Disturbance) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Inside { planned: Some((n, disturbance)), ..Inside::default() })))
    }

    /// The names of all calls so far.
    pub fn calls(&self) -> Vec<&'static str> {
        self.inside().calls.clone()
    }

    /// Is the process dead? Then every further call fails.
    pub fn crashed(&self) -> bool {
        self.inside().crashed
    }

    /// A new process takes the place of a dead one. It is not disturbed again.
    pub fn restart(&self) {
        self.inside().crashed = false;
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is planned for this call.
    fn next(&self, call: &'static str) -> Result<Option<Disturbance>, Fault> {
        let mut inside = self.inside();
        if inside.crashed {
            return Err(dead());
        }
        let number = inside.calls.len();
        inside.calls.push(call);
        Ok(inside.planned.filter(|(n, _)| *n == number).map(|(_, disturbance)| disturbance))
    }
}

impl Gate for FaultPlan {
    async fn pass<T: Send>(&self, call: &'static str, effect: impl Future<Output = Result<T, Fault>> + Send) -> Result<T, Fault> {
        match self.next(call)? {
            None => effect.await,
            Some(Disturbance::CrashBefore) => {
                self.inside().crashed = true;
                Err(dead())
            }
            Some(Disturbance::CrashAfter) => {
                let _ = effect.await;
                self.inside().crashed = true;
                Err(dead())
            }
            Some(Disturbance::LostReply) => {
                let _ = effect.await;
                Err(Fault::retryable("faults.lost_reply", format!("the reply to {call} was lost")))
            }
        }
    }
}

fn dead() -> Fault {
    Fault::retryable("faults.crashed", "this process is dead")
}
