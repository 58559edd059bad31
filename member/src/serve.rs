//! The probes over HTTP, for a container beside ZooKeeper's.
//!
//! A probe that starts a program in a container costs the node many times more than the question
//! itself, and every member is asked all the time; one small server answers for next to nothing.
//!
//! Any pod may reach this port, and the kubelet's probe has to be answered all the same. So one thread
//! waits for all clients, keeps a fixed number of them ([`clients`]), and never waits for one; and
//! clients that ask the same at the same time share one question to the server.

mod clients;

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::low_level::pipe;

use crate::options::Volumes;
use crate::{probe, volumes};
use clients::Clients;

/// How many new clients are accepted before the present ones are served again.
const ACCEPTED_AT_ONCE: usize = 64;
/// How long to wait when the system has no room for another connection.
const PAUSE: Duration = Duration::from_millis(50);

/// The member that clients ask about.
#[derive(Clone, Debug)]
struct Member {
    /// The port of its server on the loopback interface.
    zookeeper: u16,
    volumes: Volumes,
}

/// A question that takes time to answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Question {
    /// Does the server serve clients?
    Ready,
    /// What is on the volumes?
    Volumes,
}

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Request {
    Question(Question),
    /// Pods that an earlier operator version made have a liveness probe here. Another container's answer must
    /// not kill ZooKeeper, so the liveness probe always succeeds.
    Live,
    Unknown,
}

/// Answers `GET /ready` and `GET /volumes` on the port `listen` about the server on the port
/// `zookeeper` of the loopback interface, until SIGTERM.
pub(crate) fn serve(listen: u16, zookeeper: u16, volumes: Volumes) -> Result<(), String> {
    // The first process of a container does not end by a signal that it does not handle.
    let stop = stop_signals().map_err(|e| format!("cannot handle signals: {e}"))?;
    let failed = |e| format!("cannot listen on port {listen}: {e}");
    let listener = bind(listen).map_err(failed)?;
    let server = Server::new(listener, Member { zookeeper, volumes }).map_err(failed)?;
    server
        .run(&stop)
        .map_err(|e| format!("cannot wait for requests: {e}"))
}

/// A socket that a byte arrives on when the program is to end.
fn stop_signals() -> std::io::Result<UnixStream> {
    let (stop, signal) = UnixStream::pair()?;
    pipe::register(SIGTERM, signal.try_clone()?)?;
    pipe::register(SIGINT, signal)?;
    Ok(stop)
}

/// On every address of the pod, whichever family it has.
fn bind(port: u16) -> std::io::Result<TcpListener> {
    TcpListener::bind(SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)))
        .or_else(|_| TcpListener::bind(SocketAddr::from((Ipv4Addr::UNSPECIFIED, port))))
}

/// A thread that answers one question for every client that waits for it.
#[derive(Debug)]
struct Worker {
    question: Question,
    order: Sender<()>,
    busy: bool,
}

#[derive(Debug)]
struct Server {
    listener: TcpListener,
    clients: Clients,
    workers: [Worker; 2],
    answers: Receiver<(Question, Vec<u8>)>,
    /// A byte arrives when a worker has answered.
    wake: UnixStream,
}

impl Server {
    fn new(listener: TcpListener, member: Member) -> std::io::Result<Self> {
        listener.set_nonblocking(true)?;
        let (wake, waker) = UnixStream::pair()?;
        wake.set_nonblocking(true)?;
        let (sender, answers) = channel();
        let waker = Arc::new(waker);
        let worker = |question| {
            let (order, orders) = channel::<()>();
            let (member, sender, waker) = (member.clone(), sender.clone(), waker.clone());
            thread::spawn(move || {
                for () in orders {
                    if sender.send((question, answer(question, &member))).is_err() {
                        return;
                    }
                    let _ = (&*waker).write_all(&[0]);
                }
            });
            Worker {
                question,
                order,
                busy: false,
            }
        };
        Ok(Self {
            listener,
            clients: Clients::default(),
            workers: [Question::Ready, Question::Volumes].map(worker),
            answers,
            wake,
        })
    }

    fn run(mut self, stop: &UnixStream) -> std::io::Result<()> {
        loop {
            if self.wait(stop)? {
                return Ok(());
            }
            self.take_answers();
            self.clients.drop_late(Instant::now());
            self.clients.read();
            self.ask();
            self.accept();
        }
    }

    /// Waits until there is something to do. Returns whether the program has to stop.
    fn wait(&self, stop: &UnixStream) -> std::io::Result<bool> {
        let own = [stop.as_fd(), self.wake.as_fd(), self.listener.as_fd()];
        let mut watched: Vec<PollFd<'_>> = own
            .into_iter()
            .chain(self.clients.reading())
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
            .collect();
        let now = Instant::now();
        let left = self
            .clients
            .deadline()
            .map(|d| d.saturating_duration_since(now));
        let left = left.map(|left| Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        });
        match poll(&mut watched, left.as_ref()) {
            Ok(_) => Ok(watched.first().is_some_and(|s| !s.revents().is_empty())),
            Err(rustix::io::Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn take_answers(&mut self) {
        let mut bytes = [0; 16];
        while matches!(self.wake.read(&mut bytes), Ok(n) if n > 0) {}
        while let Ok((question, text)) = self.answers.try_recv() {
            for worker in &mut self.workers {
                worker.busy &= worker.question != question;
            }
            self.clients.answer(question, &text);
        }
    }

    /// Starts the idle worker of each question that a client waits for.
    fn ask(&mut self) {
        for worker in &mut self.workers {
            if !worker.busy && self.clients.wait_for(worker.question) {
                worker.busy = worker.order.send(()).is_ok();
            }
        }
    }

    fn accept(&mut self) {
        for _ in 0..ACCEPTED_AT_ONCE {
            match self.listener.accept() {
                Ok((stream, from)) => self.clients.admit(stream, from.ip()),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                // The client closed the connection before it was accepted.
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return thread::sleep(PAUSE),
            }
        }
    }
}

/// The answer to a question, with its HTTP head.
fn answer(question: Question, member: &Member) -> Vec<u8> {
    match question {
        Question::Ready => {
            let answer = probe::ask(member.zookeeper);
            response(TEXT, answer.map(|()| "ok".to_owned()))
        }
        Question::Volumes => {
            let Volumes { data, datalog } = &member.volumes;
            response("application/json", volumes::report(data, datalog))
        }
    }
}

const TEXT: &str = "text/plain; charset=utf-8";

fn response(kind: &str, answer: Result<String, String>) -> Vec<u8> {
    match answer {
        Ok(text) => render("200 OK", kind, &text),
        Err(why) => render("503 Service Unavailable", TEXT, &why),
    }
}

fn render(status: &str, kind: &str, text: &str) -> Vec<u8> {
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n{text}",
        text.len()
    )
    .into_bytes()
}

/// What a request asks for, by its first line.
fn asked(head: &[u8]) -> Request {
    let line = head.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let line = String::from_utf8_lossy(line);
    let mut words = line.split_ascii_whitespace();
    let (method, target) = (words.next(), words.next());
    let path = target.and_then(|t| t.split('?').next());
    match (method, path) {
        (Some("GET" | "HEAD"), Some("/ready")) => Request::Question(Question::Ready),
        (Some("GET" | "HEAD"), Some("/volumes")) => Request::Question(Question::Volumes),
        (Some("GET" | "HEAD"), Some("/live")) => Request::Live,
        _ => Request::Unknown,
    }
}

#[cfg(test)]
mod tests;
