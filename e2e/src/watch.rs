//! A kind of object in one namespace, kept current by `kubectl get --watch`, with its history.

use std::collections::BTreeMap;
use std::io::Read;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, SystemTime};

use anyhow::Result;
use serde_json::Value;

use crate::kubectl::Kubectl;

/// One change of one object.
#[derive(Clone, Debug)]
pub struct Event {
    /// When it arrived.
    pub at: SystemTime,
    /// Whether this event is the deletion of the object.
    pub deleted: bool,
    /// The object after it.
    pub object: Value,
}

impl Event {
    /// The object's name.
    pub fn name(&self) -> &str {
        self.object["metadata"]["name"].as_str().unwrap_or_default()
    }

    /// The object's uid.
    pub fn uid(&self) -> &str {
        self.object["metadata"]["uid"].as_str().unwrap_or_default()
    }
}

#[derive(Debug, Default)]
struct State {
    objects: BTreeMap<String, Value>,
    history: Vec<Event>,
}

/// A running watch; it ends when it is dropped.
#[derive(Debug)]
pub struct Watch {
    state: Arc<Mutex<State>>,
    child: Arc<Mutex<Option<Child>>>,
    stopped: Arc<AtomicBool>,
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::SeqCst);
        if let Some(mut child) = lock(&self.child).take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Watch {
    /// Watches all objects of a kind in a namespace.
    pub fn start(kubectl: &Kubectl, namespace: &str, kind: &str) -> Result<Self> {
        let state = Arc::new(Mutex::new(State::default()));
        let child = Arc::new(Mutex::new(None));
        let stopped = Arc::new(AtomicBool::new(false));
        let watch = Self {
            state: Arc::clone(&state),
            child: Arc::clone(&child),
            stopped: Arc::clone(&stopped),
        };
        let (kubectl, namespace, kind) = (kubectl.clone(), namespace.to_owned(), kind.to_owned());
        thread::spawn(move || {
            // The server ends a watch now and then; the next one begins with a full list.
            while !stopped.load(Ordering::SeqCst) {
                let arguments = [
                    "-n",
                    &namespace,
                    "get",
                    &kind,
                    "-o",
                    "json",
                    "--watch",
                    "--output-watch-events",
                ];
                let started = kubectl
                    .command(&arguments)
                    .stdout(Stdio::piped())
                    .stderr(Stdio::null())
                    .spawn();
                if let Ok(mut process) = started {
                    let output = process.stdout.take();
                    *lock(&child) = Some(process);
                    if let Some(output) = output {
                        follow(output, &state);
                    }
                    if let Some(mut process) = lock(&child).take() {
                        let _ = process.kill();
                        let _ = process.wait();
                    }
                }
                if !stopped.load(Ordering::SeqCst) {
                    thread::sleep(Duration::from_millis(500));
                }
            }
        });
        Ok(watch)
    }

    /// An object as last seen.
    pub fn get(&self, name: &str) -> Option<Value> {
        lock(&self.state).objects.get(name).cloned()
    }

    /// All objects as last seen.
    pub fn all(&self) -> Vec<Value> {
        lock(&self.state).objects.values().cloned().collect()
    }

    /// Every change so far.
    pub fn history(&self) -> Vec<Event> {
        lock(&self.state).history.clone()
    }
}

fn follow(output: impl Read, state: &Mutex<State>) {
    let reader = std::io::BufReader::new(output);
    for document in serde_json::Deserializer::from_reader(reader).into_iter::<Value>() {
        let Ok(mut document) = document else { return };
        let deleted = document["type"] == "DELETED";
        let object = document["object"].take();
        let Some(name) = object["metadata"]["name"].as_str().map(str::to_owned) else {
            continue;
        };
        let mut state = lock(state);
        if deleted {
            state.objects.remove(&name);
        } else {
            state.objects.insert(name, object.clone());
        }
        state.history.push(Event {
            at: SystemTime::now(),
            deleted,
            object,
        });
    }
}
