//! The phase, given the previous one. A plan has no memory, so it cannot distinguish the end of a roll from a
//! crashed member, or an ensemble that was ready from one that is about to be ready.

use bellwether_api::ensemble::Phase;

use super::report::Report;

impl Report {
    /// Keeps the phase that the status shows now while the change that began in it is unfinished:
    ///
    /// * A start ends when the last member serves, not when a majority does; a size change or a roll ends when
    ///   the member that restarted last serves, not when its old pod terminates.
    /// * An ensemble becomes ready when Kubernetes counts every member as ready. A server serves a moment
    ///   before the kubelet's next probe reports it, and until then the Service has no address for it: a client
    ///   that waits for `Ready` of a new ensemble and connects would be refused. A ready ensemble stays ready
    ///   while its servers serve, whatever a probe reports.
    pub(super) fn go_on_from(&mut self, previous: Option<Phase>) {
        let Some(previous) = previous else {
            return;
        };
        let changing = matches!(
            previous,
            Phase::Starting | Phase::Growing | Phase::Shrinking | Phase::Rolling
        );
        let coming = changing || previous == Phase::Recovering;
        match self.phase {
            Phase::Recovering if changing && self.on_their_way && self.troubles.is_empty() => {
                self.phase = previous;
            }
            Phase::Ready if coming => {
                let unready = self.unready();
                if !unready.is_empty() {
                    self.phase = previous;
                    self.message = format!(
                        "{} Waiting for Kubernetes to count {} as ready; until then the Service sends no client there.",
                        self.message,
                        unready.join(", ")
                    );
                }
            }
            _ => {}
        }
    }

    fn unready(&self) -> Vec<String> {
        let members = self.members.iter().chain(&self.observers);
        let unready = members.filter(|m| !m.ready);
        unready.map(|m| m.pod.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use bellwether_api::ensemble::MemberRole;
    use bellwether_api::ensemble::status::Reason;

    use super::super::report::MemberReport;
    use super::super::trouble::Trouble;
    use super::super::verdict::Verdict;
    use super::*;
    use crate::ids::ServerId;

    fn report(phase: Phase, ready: [bool; 2]) -> Report {
        let mut report = Report::new(phase, "All serve.".to_owned());
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
        report
    }

    fn after(previous: Option<Phase>, mut report: Report) -> (Phase, String) {
        report.go_on_from(previous);
        (report.phase, report.message)
    }

    #[test]
    fn an_ensemble_becomes_ready_when_the_service_leads_to_every_member() {
        let (phase, message) = after(Some(Phase::Growing), report(Phase::Ready, [true, false]));
        assert_eq!(phase, Phase::Growing);
        assert!(message.contains("count zk-1 as ready"), "{message}");
        let (phase, _) = after(None, report(Phase::Ready, [false, false]));
        assert_eq!(phase, Phase::Ready);
        let now = after(Some(Phase::Rolling), report(Phase::Ready, [true, true]));
        assert_eq!(now, (Phase::Ready, "All serve.".to_owned()));
    }

    #[test]
    fn one_that_is_ready_stays_so_while_it_serves() {
        for previous in [Phase::Ready, Phase::Paused, Phase::Blocked] {
            let (phase, _) = after(Some(previous), report(Phase::Ready, [true, false]));
            assert_eq!(phase, Phase::Ready);
        }
    }

    #[test]
    fn a_roll_goes_on_until_the_last_one_serves() {
        let mut last = report(Phase::Recovering, [true, false]);
        let phase = |previous, report: &Report| after(Some(previous), report.clone()).0;
        last.on_their_way = true;
        assert_eq!(phase(Phase::Rolling, &last), Phase::Rolling);
        assert_eq!(phase(Phase::Growing, &last), Phase::Growing);
        assert_eq!(phase(Phase::Starting, &last), Phase::Starting);
        // What was at rest has lost a member.
        assert_eq!(phase(Phase::Ready, &last), Phase::Recovering);
        last.on_their_way = false;
        assert_eq!(phase(Phase::Rolling, &last), Phase::Recovering);
        last.on_their_way = true;
        last.troubles.push(Trouble {
            reason: Reason::PodFailing,
            message: String::new(),
        });
        assert_eq!(phase(Phase::Rolling, &last), Phase::Recovering);
    }
}
