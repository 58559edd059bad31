//! The panels and their queries.
//!
//! A gauge of the operator is taken as the `max` over its pods: only the one with the lease tells of ensembles, and
//! each of them counts the elections. Its process is found by `bellwether_build_info`, whatever its job is called.

use super::{Look, Panel, Row};

pub(super) const ROWS: &[Row] = &[
    Row {
        title: "Ensembles",
        panels: ENSEMBLES,
    },
    Row {
        title: "Elections",
        panels: ELECTIONS,
    },
    Row {
        title: "Operator",
        panels: OPERATOR,
    },
    Row {
        title: "ZooKeeper's servers (spec.metrics.enabled)",
        panels: SERVERS,
    },
];

const fn panel(
    title: &'static str,
    about: &'static str,
    look: Look,
    unit: &'static str,
    width: u8,
    queries: &'static [(&'static str, &'static str)],
) -> Panel {
    Panel {
        title,
        about,
        look,
        unit,
        width,
        queries,
    }
}

const ENSEMBLES: &[Panel] = &[
    panel(
        "Ensembles",
        "How many ZooKeeperEnsembles there are.",
        Look::Number,
        "short",
        6,
        &[(
            r#"count(max by (namespace, name) (bellwether_ensemble_ready{namespace=~"$namespace", name=~"$ensemble"})) or vector(0)"#,
            "",
        )],
    ),
    panel(
        "Not ready",
        "Ensembles that are not as their specs ask: a change is under way, or something is wrong.",
        Look::Number,
        "short",
        6,
        &[(
            r#"count(max by (namespace, name) (bellwether_ensemble_ready{namespace=~"$namespace", name=~"$ensemble"}) == 0) or vector(0)"#,
            "",
        )],
    ),
    panel(
        "Without a leader",
        "Ensembles that nobody can write to.",
        Look::Trouble,
        "short",
        6,
        &[(
            r#"count(max by (namespace, name) (bellwether_ensemble_leader_server_id{namespace=~"$namespace", name=~"$ensemble"}) == 0) or vector(0)"#,
            "",
        )],
    ),
    panel(
        "Degraded",
        "Ensembles of which a person should know something. The condition Degraded says what.",
        Look::Trouble,
        "short",
        6,
        &[(
            r#"sum(max by (namespace, name) (bellwether_ensemble_condition{type="Degraded", status="true", namespace=~"$namespace", name=~"$ensemble"})) or vector(0)"#,
            "",
        )],
    ),
    panel(
        "Phase",
        "What the operator is doing with each ensemble.",
        Look::Lines,
        "short",
        12,
        &[(
            r#"max by (namespace, name, phase) (bellwether_ensemble_phase{namespace=~"$namespace", name=~"$ensemble"}) == 1"#,
            "{{namespace}}/{{name}}: {{phase}}",
        )],
    ),
    panel(
        "Conditions that hold",
        "Ready and Available should; Degraded and Stalled should not.",
        Look::Lines,
        "short",
        12,
        &[(
            r#"max by (namespace, name, type) (bellwether_ensemble_condition{status="true", namespace=~"$namespace", name=~"$ensemble"}) == 1"#,
            "{{namespace}}/{{name}}: {{type}}",
        )],
    ),
    panel(
        "Members",
        "Wanted, in the server list that is being brought to all, and serving. A size change goes by one.",
        Look::Lines,
        "short",
        12,
        &[
            (
                r#"max by (namespace, name) (bellwether_ensemble_wanted_members{namespace=~"$namespace", name=~"$ensemble"})"#,
                "{{namespace}}/{{name}} wanted",
            ),
            (
                r#"max by (namespace, name) (bellwether_ensemble_server_list_members{namespace=~"$namespace", name=~"$ensemble"})"#,
                "{{namespace}}/{{name}} in the list",
            ),
            (
                r#"max by (namespace, name) (bellwether_ensemble_serving_members{namespace=~"$namespace", name=~"$ensemble"})"#,
                "{{namespace}}/{{name}} serving",
            ),
        ],
    ),
    panel(
        "Leader",
        "The server id of the leader; 0 is nobody.",
        Look::Lines,
        "short",
        12,
        &[(
            r#"max by (namespace, name) (bellwether_ensemble_leader_server_id{namespace=~"$namespace", name=~"$ensemble"})"#,
            "{{namespace}}/{{name}}",
        )],
    ),
    panel(
        "Epoch",
        "One more with each new leader. It grows by itself only if leaders fail.",
        Look::Lines,
        "short",
        12,
        &[(
            r#"max by (namespace, name) (bellwether_ensemble_epoch{namespace=~"$namespace", name=~"$ensemble"})"#,
            "{{namespace}}/{{name}}",
        )],
    ),
    panel(
        "Restarts in an hour",
        "Members that the operator restarted, for a change that was asked for.",
        Look::Lines,
        "short",
        12,
        &[(
            r#"sum by (namespace, name) (increase(bellwether_ensemble_member_restarts_total{namespace=~"$namespace", name=~"$ensemble"}[1h]))"#,
            "{{namespace}}/{{name}}",
        )],
    ),
    panel(
        "Waiting members",
        "What members wait for before they restart or count as up to date.",
        Look::Lines,
        "short",
        12,
        &[(
            r#"sum by (reason) (max by (namespace, name, reason) (bellwether_ensemble_waiting_members{namespace=~"$namespace", name=~"$ensemble"}))"#,
            "{{reason}}",
        )],
    ),
    panel(
        "Outdated members",
        "Members that do not run the latest configuration yet.",
        Look::Lines,
        "short",
        12,
        &[(
            r#"max by (namespace, name) (bellwether_ensemble_outdated_members{namespace=~"$namespace", name=~"$ensemble"})"#,
            "{{namespace}}/{{name}}",
        )],
    ),
];

const ELECTIONS: &[Panel] = &[
    panel(
        "Mirrored",
        "Elections that each pod of the operator mirrors.",
        Look::Number,
        "short",
        6,
        &[("max(bellwether_election_mirrors)", "")],
    ),
    panel(
        "Led",
        "Elections in which somebody leads.",
        Look::Number,
        "short",
        6,
        &[(
            r#"sum(max by (reason) (bellwether_election_conditions{type="LeaderElected", status="true"})) or vector(0)"#,
            "",
        )],
    ),
    panel(
        "Blind mirrors",
        "Elections whose mirror sees nothing: what their status says is not confirmed.",
        Look::Trouble,
        "short",
        6,
        &[(
            r#"sum(max by (reason) (bellwether_election_conditions{type="Synced", status!="true"})) or vector(0)"#,
            "",
        )],
    ),
    panel(
        "Unhealthy queues",
        "Elections whose znodes look wrong.",
        Look::Trouble,
        "short",
        6,
        &[(
            r#"sum(max by (reason) (bellwether_election_conditions{type="QueueHealthy", status="false"})) or vector(0)"#,
            "",
        )],
    ),
    panel(
        "Changes of leaders",
        "Per second, over all elections.",
        Look::Lines,
        "ops",
        12,
        &[(
            "sum(rate(bellwether_election_leader_changes_total[$__rate_interval]))",
            "changes",
        )],
    ),
    panel(
        "Why conditions do not hold",
        "Elections by the reason of each condition that is not true.",
        Look::Lines,
        "short",
        12,
        &[(
            r#"max by (type, reason) (bellwether_election_conditions{status!="true"}) > 0"#,
            "{{type}}: {{reason}}",
        )],
    ),
    panel(
        "From event to status",
        "How long after the event in ZooKeeper a change of the leader was written.",
        Look::Lines,
        "s",
        12,
        &[
            (
                "histogram_quantile(0.5, sum by (le) (rate(bellwether_election_event_to_status_seconds_bucket[$__rate_interval])))",
                "median",
            ),
            (
                "histogram_quantile(0.99, sum by (le) (rate(bellwether_election_event_to_status_seconds_bucket[$__rate_interval])))",
                "99 %",
            ),
            (
                "histogram_quantile(0.99, sum by (le) (rate(bellwether_election_event_to_projection_seconds_bucket[$__rate_interval])))",
                "99 % of projections",
            ),
        ],
    ),
    panel(
        "From event to status",
        "The same, as a distribution over time.",
        Look::Heatmap,
        "s",
        12,
        &[(
            "sum by (le) (increase(bellwether_election_event_to_status_seconds_bucket[$__rate_interval]))",
            "{{le}}",
        )],
    ),
    panel(
        "Reads and writes",
        "Reads of elections, and writes of statuses and projections, by outcome.",
        Look::Lines,
        "ops",
        12,
        &[
            (
                "sum by (outcome) (rate(bellwether_election_reads_total[$__rate_interval]))",
                "reads: {{outcome}}",
            ),
            (
                "sum by (outcome) (rate(bellwether_election_writes_total[$__rate_interval]))",
                "statuses: {{outcome}}",
            ),
            (
                "sum by (outcome) (rate(bellwether_election_projection_writes_total[$__rate_interval]))",
                "projections: {{outcome}}",
            ),
        ],
    ),
    panel(
        "Sessions",
        "ZooKeeper sessions of each pod: one for each ensemble or connection that elections are in.",
        Look::Lines,
        "short",
        12,
        &[("bellwether_election_sessions", "{{instance}}")],
    ),
];

const OPERATOR: &[Panel] = &[
    panel(
        "Reconciles",
        "Passes over ensembles, by outcome.",
        Look::Lines,
        "ops",
        12,
        &[(
            "sum by (outcome) (rate(bellwether_reconciles_total[$__rate_interval]))",
            "{{outcome}}",
        )],
    ),
    panel(
        "Duration of a reconcile",
        "A member that does not answer is waited for up to two seconds.",
        Look::Heatmap,
        "s",
        12,
        &[(
            "sum by (le) (increase(bellwether_reconcile_seconds_bucket[$__rate_interval]))",
            "{{le}}",
        )],
    ),
    panel(
        "API writes",
        "Objects and statuses of ensembles that were written. There are none while nothing changes.",
        Look::Lines,
        "ops",
        12,
        &[(
            "sum by (kind) (rate(bellwether_api_writes_total[$__rate_interval]))",
            "{{kind}}",
        )],
    ),
    panel(
        "Answers of members",
        "How long a member took to say what it is (99 %), by what it said.",
        Look::Lines,
        "s",
        12,
        &[(
            "histogram_quantile(0.99, sum by (le, outcome) (rate(bellwether_member_probe_seconds_bucket[$__rate_interval])))",
            "{{outcome}}",
        )],
    ),
    panel(
        "Memory",
        "Resident memory of each pod of the operator.",
        Look::Lines,
        "bytes",
        8,
        &[(
            "process_resident_memory_bytes and on (job, instance) bellwether_build_info",
            "{{instance}}",
        )],
    ),
    panel(
        "Processor time",
        "Of each pod of the operator.",
        Look::Lines,
        "percentunit",
        8,
        &[(
            "rate(process_cpu_seconds_total[$__rate_interval]) and on (job, instance) bellwether_build_info",
            "{{instance}}",
        )],
    ),
    panel(
        "Lease",
        "1 for the pod that acts.",
        Look::Lines,
        "short",
        8,
        &[("bellwether_lease_held", "{{instance}}")],
    ),
];

const SERVERS: &[Panel] = &[
    panel(
        "Latency of updates",
        "From the arrival of a request that changes something to its answer, 99 % of them.",
        Look::Lines,
        "ms",
        12,
        &[(
            r#"updatelatency{quantile="0.99", namespace=~"$namespace", ensemble=~"$ensemble"}"#,
            "{{pod}}",
        )],
    ),
    panel(
        "Latency of reads",
        "From the arrival of a request that changes nothing to its answer, 99 % of them.",
        Look::Lines,
        "ms",
        12,
        &[(
            r#"readlatency{quantile="0.99", namespace=~"$namespace", ensemble=~"$ensemble"}"#,
            "{{pod}}",
        )],
    ),
    panel(
        "Outstanding requests",
        "Requests that wait for their turn. They should not pile up.",
        Look::Lines,
        "short",
        12,
        &[(
            r#"outstanding_requests{namespace=~"$namespace", ensemble=~"$ensemble"}"#,
            "{{pod}}",
        )],
    ),
    panel(
        "Time of an fsync",
        "Of the transaction log, on average. Every write waits for it on a majority of the servers.",
        Look::Lines,
        "ms",
        12,
        &[(
            r#"rate(fsynctime_sum{namespace=~"$namespace", ensemble=~"$ensemble"}[$__rate_interval]) / rate(fsynctime_count{namespace=~"$namespace", ensemble=~"$ensemble"}[$__rate_interval])"#,
            "{{pod}}",
        )],
    ),
    panel(
        "Connections",
        "Clients of each server.",
        Look::Lines,
        "short",
        12,
        &[(
            r#"num_alive_connections{namespace=~"$namespace", ensemble=~"$ensemble"}"#,
            "{{pod}}",
        )],
    ),
    panel(
        "Synced followers",
        "Followers that keep up, as the leader says.",
        Look::Lines,
        "short",
        12,
        &[(
            r#"synced_followers{namespace=~"$namespace", ensemble=~"$ensemble"}"#,
            "{{pod}}",
        )],
    ),
    panel(
        "Watches",
        "Of the clients of each server.",
        Look::Lines,
        "short",
        8,
        &[(
            r#"watch_count{namespace=~"$namespace", ensemble=~"$ensemble"}"#,
            "{{pod}}",
        )],
    ),
    panel(
        "Znodes",
        "All of them, and the ephemeral ones.",
        Look::Lines,
        "short",
        8,
        &[
            (
                r#"max by (namespace, ensemble) (znode_count{namespace=~"$namespace", ensemble=~"$ensemble"})"#,
                "{{namespace}}/{{ensemble}}",
            ),
            (
                r#"max by (namespace, ensemble) (ephemerals_count{namespace=~"$namespace", ensemble=~"$ensemble"})"#,
                "{{namespace}}/{{ensemble}} ephemeral",
            ),
        ],
    ),
    panel(
        "Data",
        "Approximate size of the tree, which is all in the heap.",
        Look::Lines,
        "bytes",
        8,
        &[(
            r#"max by (namespace, ensemble) (approximate_data_size{namespace=~"$namespace", ensemble=~"$ensemble"})"#,
            "{{namespace}}/{{ensemble}}",
        )],
    ),
    panel(
        "Heap",
        "Used heap of each server.",
        Look::Lines,
        "bytes",
        12,
        &[(
            r#"sum by (namespace, pod) (jvm_memory_bytes_used{area="heap", namespace=~"$namespace", ensemble=~"$ensemble"})"#,
            "{{pod}}",
        )],
    ),
    panel(
        "Garbage collection",
        "Share of the time that each server spent on it.",
        Look::Lines,
        "percentunit",
        12,
        &[(
            r#"sum by (namespace, pod) (rate(jvm_gc_collection_seconds_sum{namespace=~"$namespace", ensemble=~"$ensemble"}[$__rate_interval]))"#,
            "{{pod}}",
        )],
    ),
];
