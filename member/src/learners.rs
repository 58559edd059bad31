//! The learners of a leader.

/// How the lines with the numbers of followers and observers begin.
const WANTED: [&str; 2] = ["zk_synced_followers\t", "zk_synced_observers\t"];

/// The lines of a leader's answer to `mntr` that tell how many followers and observers have all that it committed.
/// They tell the operator of a member that is lost, without a question to each of them.
pub fn learner_lines(mntr: &str) -> String {
    let is_wanted = |line: &&str| WANTED.iter().any(|name| line.starts_with(name));
    let lines = mntr.lines().filter(is_wanted);
    lines.flat_map(|line| [line, "\n"]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_numbers_of_learners_are_taken() {
        let mntr = "zk_version\t3.9.5\nzk_synced_followers\t2\nzk_synced_non_voting_followers\t0\n\
                    zk_synced_observers\t1\nzk_pending_syncs\t0\n";
        assert_eq!(
            learner_lines(mntr),
            "zk_synced_followers\t2\nzk_synced_observers\t1\n"
        );
        assert_eq!(learner_lines("zk_server_state\tfollower\n"), "");
    }
}
