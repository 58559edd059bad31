//! What is told beside the leader's node: who else may lead, who was active last, and until when the
//! leader leads.

use std::sync::Arc;

use jiff::Timestamp;

use crate::reading::{Claim, Member, Reading, Seat, Verdict};
use crate::rules::Rules;

/// Those who may lead, where they are the children of a path of their own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Crowd {
    /// Some of them by name, at most as many as the status lists.
    pub members: Vec<(String, Member)>,
    /// How many they are.
    pub count: usize,
    /// The newest transaction that was seen.
    pub zxid: i64,
}

impl Reading {
    /// Adds those who may lead to a reading of the leader's node. The leader is among them as a rule;
    /// it gets its address from there, if its own node has none.
    pub fn add_crowd(&mut self, rules: &Rules, crowd: Crowd) {
        let leader = self.seats.first().cloned();
        let is_leader = |name: &str, member: &Member| {
            let claim = leader.as_ref().and_then(|seat| seat.member.claim());
            claim.is_some_and(|claim| {
                let session = member.claim().map_or(0, |member| member.session);
                claim.identity.text == name || (session != 0 && session == claim.session)
            })
        };
        let (own, mut others): (Vec<_>, Vec<_>) = crowd
            .members
            .into_iter()
            .partition(|(name, member)| is_leader(name, member));
        if let Some((_, Member::Read(own))) = own.first() {
            let address = &own.identity.address;
            let alone = match &mut self.verdict {
                Verdict::Leader(seat) => Some(seat.as_mut()),
                _ => None,
            };
            for seat in self.seats.iter_mut().chain(alone) {
                if let Member::Read(claim) = &mut seat.member {
                    let claim = Arc::make_mut(claim);
                    claim.identity.address = claim.identity.address.take().or(address.clone());
                }
            }
        }
        let age = |member: &Member| member.claim().map_or(i64::MAX, |claim| claim.czxid);
        others.sort_by(|(one, a), (other, b)| (age(a), one).cmp(&(age(b), other)));
        let path = rules.members_path().unwrap_or_default();
        let seats = others.into_iter().map(|(name, member)| {
            // Names tell candidates apart, and the leader's node may have this one, too.
            let taken = leader.as_ref().is_some_and(|seat| seat.node == name);
            let node = if taken {
                format!("{path}/{name}")
            } else {
                name
            };
            Seat::plain(&node, member)
        });
        self.seats.extend(seats);
        self.seats.truncate(rules.max_candidates());
        self.candidate_count += crowd.count.saturating_sub(own.len());
        self.zxid = self.zxid.max(crowd.zxid);
    }

    /// Adds who was active last, or that nobody is said to have been, as of a transaction.
    pub fn add_breadcrumb(&mut self, claim: Option<Claim>, zxid: i64) {
        self.zxid = self.zxid.max(zxid);
        self.last_active = claim;
    }

    /// Until when the leader leads, if that is limited.
    pub fn expires(&self) -> Option<Timestamp> {
        self.leader()?.member.claim()?.expires
    }

    /// Takes the time into account: nobody leads any longer than its data says.
    pub fn expire(&mut self, now: Timestamp) {
        if self.expires().is_some_and(|end| end <= now) {
            self.verdict = Verdict::NotActive;
        }
    }
}

#[cfg(test)]
mod tests;
