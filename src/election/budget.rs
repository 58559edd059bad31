//! What the elections of one session may have in memory together.

use std::sync::Arc;

use bellwether_election::limits::{Excess, MAX_SESSION, memory};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};

use super::target::Target;

/// How many answers one session takes at the same time. Each may have 1 MiB.
const READS: usize = 16;

/// The same for a ZooKeeper that Bellwether does not run: there may be many of those.
const READS_EXTERNAL: usize = 4;

/// The unit in which names are counted, in bytes.
const UNIT: usize = 1024;

/// What the elections of one session may have in memory together.
#[derive(Debug)]
pub(super) struct Budget {
    reads: Semaphore,
    names: Arc<Semaphore>,
}

/// Room for the names of the children of one path; dropping this gives it back.
#[derive(Debug)]
pub(super) struct Held(
    #[allow(dead_code, reason = "it is held to be dropped")] OwnedSemaphorePermit,
);

impl Budget {
    /// The budget of a session to this target.
    pub(super) fn new(target: &Target) -> Self {
        let reads = match target.connection() {
            Some(_) => READS_EXTERNAL,
            None => READS,
        };
        Self {
            reads: Semaphore::new(reads),
            names: Arc::new(Semaphore::new(MAX_SESSION / UNIT)),
        }
    }

    /// Waits until one more answer may be taken. It is held until the answer is decoded. `None` means that the
    /// semaphore is closed and limits nothing.
    pub(super) async fn read(&self) -> Option<SemaphorePermit<'_>> {
        self.reads.acquire().await.ok()
    }

    /// Room for the names of these children.
    ///
    /// # Errors
    ///
    /// If they exceed what one election may have, or what is left for the session.
    pub(super) fn hold(&self, children: &[String]) -> Result<Held, Excess> {
        let units = memory(children)?.div_ceil(UNIT);
        let units = u32::try_from(units).map_err(|_| Excess::Session)?;
        let permit = self.names.clone().try_acquire_many_owned(units);
        permit.map(Held).map_err(|_| Excess::Session)
    }
}

#[cfg(test)]
mod tests {
    use bellwether_api::election::Connection;

    use super::super::target::Holder;
    use super::*;

    fn budget() -> Budget {
        Budget::new(&Target {
            namespace: "default".to_owned(),
            holder: Holder::External(Connection::default()),
            authentication: None,
        })
    }

    #[test]
    fn names_are_taken_until_the_session_is_full_and_room_comes_back() {
        let budget = budget();
        let many = vec!["x".repeat(100); 50_000];
        let all: Vec<_> = (0..10).map(|_| budget.hold(&many)).collect();
        let mut held: Vec<Held> = all.into_iter().filter_map(Result::ok).collect();
        assert!((2..10).contains(&held.len()), "{} elections", held.len());
        assert_eq!(budget.hold(&many).err(), Some(Excess::Session));
        // Small elections go on, also beside large ones.
        assert!(budget.hold(&["a".to_owned()]).is_ok());
        held.pop();
        assert!(budget.hold(&many).is_ok());
    }

    #[tokio::test]
    async fn a_foreign_server_has_few_answers_taken_at_once() {
        let budget = budget();
        let mut taken = Vec::new();
        for _ in 0..READS_EXTERNAL {
            taken.push(budget.read().await);
        }
        assert!(futures::FutureExt::now_or_never(budget.read()).is_none());
        taken.pop();
        assert!(futures::FutureExt::now_or_never(budget.read()).is_some());
    }
}
