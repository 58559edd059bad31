//! A mirror against a stand-in for ZooKeeper, which reports changes only when a test wants it to.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::Mutex;

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tokio::net::tcp::OwnedWriteHalf;

use super::super::relay::tests::{frame, framed, grant};
use super::super::session::Presence;
use super::super::session::tests::kept;
use super::*;
use bellwether_election::guards::Guards;

const PATH: &str = "/leader";
const DEADLINE: Duration = Duration::from_secs(20);

/// What ZooKeeper's protocol calls things.
const NO_NODE: i32 = -101;
const NO_AUTH: i32 = -102;
const CREATED: i32 = 1;
const DELETED: i32 = 2;

#[derive(Clone)]
struct Node {
    czxid: i64,
    owner: i64,
    data: String,
}

/// A ZooKeeper with one connection.
#[derive(Default)]
struct Zoo {
    nodes: Mutex<HashMap<String, Node>>,
    /// The last transaction.
    zxid: Mutex<i64>,
    is_closed: Mutex<bool>,
    /// It answers all but requests for data.
    is_silent: Mutex<bool>,
    /// The ACL of the root hides what it is.
    hides_root: Mutex<bool>,
    /// The children of every path.
    children: Mutex<Vec<String>>,
    /// How often the mirror found the leader's node missing and set a watch for it.
    misses: watch::Sender<usize>,
    writer: tokio::sync::Mutex<Option<OwnedWriteHalf>>,
}

impl Zoo {
    async fn serve(self: Arc<Self>, listener: TcpListener) -> std::io::Result<()> {
        let (stream, _) = listener.accept().await?;
        let (mut reader, mut writer) = stream.into_split();
        frame(&mut reader).await?;
        writer.write_all(&grant(6_000)).await?;
        *self.writer.lock().await = Some(writer);
        loop {
            let request = frame(&mut reader).await?;
            let asks_for_data = request.get(4..8) == Some(&4_i32.to_be_bytes());
            if asks_for_data && *self.is_silent.lock().unwrap() {
                continue;
            }
            let answer = self.answer(&request);
            self.send(&answer).await?;
        }
    }

    async fn send(&self, body: &[u8]) -> std::io::Result<()> {
        let mut writer = self.writer.lock().await;
        writer.as_mut().unwrap().write_all(&framed(body)).await
    }

    fn answer(&self, request: &[u8]) -> Vec<u8> {
        let number = |at: usize| i32::from_be_bytes(request[at..at + 4].try_into().unwrap());
        let (xid, code) = (number(0), number(4));
        let path = || {
            let length = usize::try_from(number(8)).unwrap();
            String::from_utf8(request[12..12 + length].to_vec()).unwrap()
        };
        let (error, body) = match code {
            3 | 4 => self.read(&path(), code == 4),
            12 => (0, self.list()),
            // The answer to a sync repeats the path.
            9 => (0, request[8..].to_vec()),
            // A ping, or the end of watches.
            _ => (0, Vec::new()),
        };
        let zxid = 100_i64.to_be_bytes();
        [&xid.to_be_bytes()[..], &zxid, &error.to_be_bytes(), &body].concat()
    }

    fn read(&self, path: &str, with_data: bool) -> (i32, Vec<u8>) {
        if *self.is_closed.lock().unwrap() && with_data {
            return (NO_AUTH, Vec::new());
        }
        if *self.hides_root.lock().unwrap() && path == "/" {
            return (NO_AUTH, Vec::new());
        }
        let root = Node {
            czxid: *self.zxid.lock().unwrap(),
            owner: 0,
            data: String::new(),
        };
        let nodes = self.nodes.lock().unwrap();
        let Some(node) = nodes.get(path).or((path == "/").then_some(&root)) else {
            if path == PATH && !with_data {
                self.misses.send_modify(|misses| *misses += 1);
            }
            return (NO_NODE, Vec::new());
        };
        let mut body = Vec::new();
        let length = i32::try_from(node.data.len()).unwrap();
        if with_data {
            body.extend(length.to_be_bytes());
            body.extend(node.data.as_bytes());
        }
        let time = 1_800_000_000_000 + node.czxid;
        for number in [node.czxid, node.czxid, time, time] {
            body.extend(number.to_be_bytes());
        }
        body.extend([0; 12]);
        body.extend(node.owner.to_be_bytes());
        body.extend(length.to_be_bytes());
        body.extend(0_i32.to_be_bytes());
        body.extend(node.czxid.to_be_bytes());
        (0, body)
    }

    /// The children, and what is known of their parent.
    fn list(&self) -> Vec<u8> {
        let children = self.children.lock().unwrap();
        let mut body = i32::try_from(children.len())
            .unwrap()
            .to_be_bytes()
            .to_vec();
        for name in children.iter() {
            body.extend(i32::try_from(name.len()).unwrap().to_be_bytes());
            body.extend(name.as_bytes());
        }
        body.extend([0; 68]);
        body
    }

    fn put(&self, czxid: i64, owner: i64, data: String) {
        let node = Node { czxid, owner, data };
        *self.zxid.lock().unwrap() = czxid;
        self.nodes.lock().unwrap().insert(PATH.to_owned(), node);
    }

    fn delete(&self) {
        *self.zxid.lock().unwrap() += 1;
        self.nodes.lock().unwrap().clear();
    }

    /// Sends the event of a change of the leader's node.
    async fn event(&self, kind: i32) {
        let mut body = (-1_i32).to_be_bytes().to_vec();
        body.extend((-1_i64).to_be_bytes());
        body.extend(0_i32.to_be_bytes());
        body.extend(kind.to_be_bytes());
        body.extend(3_i32.to_be_bytes());
        body.extend(i32::try_from(PATH.len()).unwrap().to_be_bytes());
        body.extend(PATH.as_bytes());
        self.send(&body).await.unwrap();
    }
}

/// A mirror of that ZooKeeper, and what it reports.
struct Bench {
    zoo: Arc<Zoo>,
    inputs: mpsc::Receiver<WriterInput>,
    sighting: Sighting,
    _presence: watch::Sender<Presence>,
}

impl Bench {
    async fn new(dialect: Value, projections: Value) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let zoo = Arc::new(Zoo::default());
        tokio::spawn(zoo.clone().serve(listener));
        let (link, presence) = kept(address);
        let spec = json!({"ensembleRef": {"name": "main"}, "path": PATH,
            "dialect": dialect, "projections": projections});
        let (inputs, reports) = mpsc::channel(64);
        let sighting = Sighting::new();
        let mirror = Box::new(Mirror {
            guards: Guards::ALL,
            key: Key {
                namespace: "default".to_owned(),
                name: "app".to_owned(),
            },
            uid: "uid-1".to_owned(),
            generation: Some(1),
            spec: Arc::new(serde_json::from_value(spec).unwrap()),
            detected: None,
            newest: 0,
            census: None,
            sighting: sighting.clone(),
            inputs,
            metrics: Metrics::default(),
        });
        tokio::spawn(mirror.keep(link));
        Self {
            zoo,
            inputs: reports,
            sighting,
            _presence: presence,
        }
    }

    /// The next report: who leads, that there is no leader, why the mirror is blind, or that the leader was
    /// read again.
    async fn next(&mut self) -> String {
        let input = tokio::time::timeout(DEADLINE, self.inputs.recv()).await;
        match input.expect("nothing is told").unwrap() {
            WriterInput::Confirmed(_) => "confirmed".to_owned(),
            WriterInput::Seen(seen) => match seen.sight {
                Sight::Seen(reading) => match reading.leader().and_then(|l| l.znode.candidacy()) {
                    Some(candidacy) => candidacy.identity.text.clone(),
                    None => "nobody".to_owned(),
                },
                Sight::Blind(blindness) => blindness.reason.as_str().to_owned(),
            },
            other => panic!("{other:?}"),
        }
    }

    /// Waits until the mirror reports a leader whose node was created by this transaction. All reports before
    /// must contain a leader, too.
    async fn leads_by(&mut self, czxid: i64) {
        loop {
            let input = tokio::time::timeout(DEADLINE, self.inputs.recv()).await;
            let WriterInput::Seen(seen) = input.expect("nothing is told").unwrap() else {
                continue;
            };
            let Sight::Seen(reading) = seen.sight else {
                panic!("no sight");
            };
            let leader = reading.leader().expect("the leader is told to be gone");
            if leader.znode.candidacy().unwrap().czxid == czxid {
                return;
            }
        }
    }

    /// The first report that differs from this one.
    async fn after(&mut self, this: &str) -> String {
        loop {
            let next = self.next().await;
            if next != this {
                return next;
            }
        }
    }
}

fn lease() -> Value {
    json!({"lease": {"leaseDurationSeconds": 1}})
}

#[tokio::test]
async fn a_leader_that_changes_without_an_event_is_noticed_where_a_lease_names_it() {
    let mut bench = Bench::new(json!({"type": "SingleText"}), lease()).await;
    bench.zoo.put(5, 1, "a".to_owned());
    let first = bench.after("nobody").await;
    let first = if first == "EnsembleNotReady" {
        bench.after("nobody").await
    } else {
        first
    };
    assert_eq!(first, "a");
    let read = bench.sighting.time();
    assert_eq!(bench.next().await, "confirmed");
    assert!(bench.sighting.time() > read);
    bench.zoo.put(9, 2, "b".to_owned());
    assert_eq!(bench.after("confirmed").await, "b");
    bench.zoo.delete();
    assert_eq!(bench.after("confirmed").await, "nobody");
}

#[tokio::test]
async fn a_read_that_is_not_finished_in_time_is_given_up_and_told() {
    let mut bench = Bench::new(json!({"type": "SingleText"}), Value::Null).await;
    *bench.zoo.is_silent.lock().unwrap() = true;
    while bench.next().await != "ReadFailed" {}
}

#[tokio::test]
async fn children_that_take_too_much_memory_are_not_kept_but_told() {
    let long = vec!["x".repeat(5000)];
    let many = vec![String::new(); 50_001];
    let beside = json!({"type": "SingleText", "membersPath": "/members"});
    for children in [long, many] {
        for dialect in [json!({"type": "Kazoo"}), beside.clone()] {
            let mut bench = Bench::new(dialect, Value::Null).await;
            bench.zoo.children.lock().unwrap().clone_from(&children);
            bench.zoo.put(5, 1, "a".to_owned());
            while bench.next().await != "ReadFailed" {}
        }
    }
}

#[tokio::test]
async fn an_acl_that_closes_takes_the_sight_where_a_lease_names_the_leader() {
    let mut bench = Bench::new(json!({"type": "SingleText"}), lease()).await;
    bench.zoo.put(5, 1, "a".to_owned());
    while bench.next().await != "confirmed" {}
    *bench.zoo.is_closed.lock().unwrap() = true;
    assert_eq!(bench.after("confirmed").await, "NoAuth");
}

#[tokio::test]
async fn a_lease_that_is_renewed_is_not_told_as_lost_and_one_that_goes_is() {
    let dialect =
        json!({"type": "SingleJson", "json": {"pointers": ["/holder"], "expiry": "/end"}});
    let holder = r#"{"holder": "a", "end": "2999-01-15T08:01:01"}"#;
    let mut bench = Bench::new(dialect, Value::Null).await;
    bench.zoo.put(5, 0, holder.to_owned());
    while bench.next().await != "a" {}
    let mut misses = bench.zoo.misses.subscribe();
    for czxid in [10, 20] {
        misses.mark_unchanged();
        bench.zoo.delete();
        bench.zoo.event(DELETED).await;
        misses.changed().await.unwrap();
        bench.zoo.put(czxid, 0, holder.to_owned());
        bench.zoo.event(CREATED).await;
        bench.leads_by(czxid).await;
    }
    bench.zoo.delete();
    bench.zoo.event(DELETED).await;
    assert_eq!(bench.next().await, "nobody");
}

#[tokio::test]
async fn a_leader_below_a_hidden_node_is_told_to_be_gone_as_soon_as_the_server_is_known_not_to_lag()
{
    let mut bench = Bench::new(json!({"type": "SingleText"}), Value::Null).await;
    *bench.zoo.hides_root.lock().unwrap() = true;
    bench.zoo.put(5, 1, "a".to_owned());
    while bench.next().await != "a" {}
    let misses = bench.zoo.misses.subscribe();
    bench.zoo.delete();
    bench.zoo.event(DELETED).await;
    assert_eq!(bench.next().await, "nobody");
    // Once before the sync and once after it.
    assert_eq!(*misses.borrow(), 2);
}
