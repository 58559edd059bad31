//! What the mirror does so that nothing deceives it, as switches for tests only.
//!
//! The operator mirrors under [`Guards::ALL`], and without the cargo feature `mutations` there is no other value: [`Guards`]
//! has no content, and every guard is a constant. With the feature the simulation leaves a guard out and shows what would
//! happen; a guard without such a life would be unproven.

/// One thing that the mirror does so that nothing deceives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Guard {
    /// The leader is read again before its Lease is renewed: a watch may be lost, and an ACL may close.
    ReadAgain,
    /// What is read over a new connection counts only once its server has caught up with the ensemble's leader.
    CaughtUp,
    /// A state that is older than the one that was reported is not believed before it was read several times.
    OlderDoubted,
    /// A pod whose containers started after the leader's node was made is not the leader's.
    OlderThanNode,
    /// Every write needs the operator's lease.
    LeaseHeld,
    /// A mirror that broke off by a defect is started again.
    StartedAgain,
}

#[cfg(feature = "mutations")]
impl Guard {
    /// Every guard. Those that stand in for each other are together: what they guard against happens only without both.
    pub const EVERY: [&[Self]; 5] = [
        &[Self::ReadAgain],
        &[Self::CaughtUp, Self::OlderDoubted],
        &[Self::OlderThanNode],
        &[Self::LeaseHeld],
        &[Self::StartedAgain],
    ];
}

/// Which guards the mirror has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Guards {
    #[cfg(feature = "mutations")]
    off: u32,
}

impl Guards {
    /// All of them.
    pub const ALL: Self = Self {
        #[cfg(feature = "mutations")]
        off: 0,
    };

    /// Whether the mirror has this guard.
    #[cfg(not(feature = "mutations"))]
    pub const fn keep(self, _guard: Guard) -> bool {
        true
    }

    /// Whether the mirror has this guard.
    #[cfg(feature = "mutations")]
    pub const fn keep(self, guard: Guard) -> bool {
        self.off & 1 << guard as u32 == 0
    }

    /// The same without this guard.
    #[cfg(feature = "mutations")]
    #[must_use]
    pub const fn without(self, guard: Guard) -> Self {
        Self {
            off: self.off | 1 << guard as u32,
        }
    }
}
