//! The wall clocks of operators that differ.

use std::time::{Duration, SystemTime};

use bellwether_api_server::Stops;
use bellwether_virtual_time::{begin, cluster_time};

#[tokio::test(flavor = "current_thread")]
async fn each_process_reads_its_own_clock_when_it_goes_on() {
    begin(1);
    let stops = Stops::default();
    stops.clocks().set("early", 90);
    stops.clocks().set("late", -90);
    let ahead = Duration::from_secs(90);
    let early = stops.run("early", async { SystemTime::now() });
    assert_eq!(early.await, cluster_time() + ahead);
    let late = stops.run("late", async { SystemTime::now() });
    assert_eq!(late.await + ahead, cluster_time());
    let other = stops.run("other", async { SystemTime::now() });
    assert_eq!(other.await, cluster_time());
    // A reconcile is a task of its own: it goes on when it has an answer.
    stops.passed("early").await;
    assert_eq!(SystemTime::now(), cluster_time() + ahead);
}
