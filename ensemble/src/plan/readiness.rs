//! When an ensemble that serves counts as ready: once clients find every member.
//!
//! A server serves a moment before the kubelet's next probe says so, and until then the Service has no
//! address for it. Who waits for `Ready` and then connects to the Service of a new ensemble would be
//! refused.

use bellwether_api::ensemble::Phase;

use super::report::Report;

impl Report {
    /// Stays in the phase before until Kubernetes counts every member as ready. One that is ready already
    /// stays so: a probe that fails while the server serves is no step back.
    ///
    /// `previous` is the phase that the status shows now; the plan itself remembers nothing.
    pub fn hold_ready(&mut self, previous: Option<Phase>) {
        let previous = match previous {
            None => Phase::Starting,
            Some(
                phase @ (Phase::Starting
                | Phase::Growing
                | Phase::Shrinking
                | Phase::Rolling
                | Phase::Recovering),
            ) => phase,
            Some(_) => return,
        };
        let members = self.members.iter().chain(&self.observers);
        let unready: Vec<&str> = members
            .filter(|m| !m.ready)
            .map(|m| m.pod.as_str())
            .collect();
        if self.phase != Phase::Ready || unready.is_empty() {
            return;
        }
        let message = format!(
            "{} Waiting for Kubernetes to count {} as ready; until then the Service sends no client there.",
            self.message,
            unready.join(", ")
        );
        self.phase = previous;
        self.message = message;
    }
}

#[cfg(test)]
mod tests {
    use bellwether_api::ensemble::MemberRole;

    use super::super::report::{MemberReport, Verdict};
    use super::*;
    use crate::ids::ServerId;

    fn held(previous: Option<Phase>, ready: [bool; 2]) -> (Phase, String) {
        let mut report = Report::new(Phase::Ready, "All serve.".to_owned());
        report.members = (1..)
            .zip(ready)
            .map(|(id, ready)| MemberReport {
                pod: format!("zk-{}", id - 1),
                id: ServerId(id),
                role: MemberRole::Follower,
                zxid: None,
                revision: None,
                node: None,
                ready,
                verdict: Verdict::UpToDate,
            })
            .collect();
        report.hold_ready(previous);
        (report.phase, report.message)
    }

    #[test]
    fn an_ensemble_is_ready_when_the_service_leads_to_every_member() {
        let (phase, message) = held(Some(Phase::Growing), [true, false]);
        assert_eq!(phase, Phase::Growing);
        assert!(message.contains("count zk-1 as ready"), "{message}");
        assert_eq!(held(None, [false, false]).0, Phase::Starting);
        assert_eq!(
            held(Some(Phase::Rolling), [true, true]),
            (Phase::Ready, "All serve.".to_owned())
        );
    }

    #[test]
    fn one_that_is_ready_stays_so_while_it_serves() {
        for previous in [Phase::Ready, Phase::Paused, Phase::Blocked] {
            assert_eq!(held(Some(previous), [true, false]).0, Phase::Ready);
        }
    }
}
