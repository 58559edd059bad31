//! The kubelet's probes over HTTP, for a container beside ZooKeeper's.
//!
//! A probe that starts a program in a container costs the node many times more than the question
//! itself, and every member is asked all the time; one small server answers for next to nothing.
//!
//! Any pod may reach this port, and the kubelet's probe has to be answered all the same. So one thread
//! waits for all clients, keeps a fixed number of them ([`clients`]), and never waits for one; and
//! clients that ask the same at the same time share one question to the server.

mod clients;

use std::io::{ErrorKind, Read, Write};
use std::net::TcpListener;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::low_level::pipe;

use crate::control::Control;
use crate::http::{self, Connection, PAUSE};
use crate::options::Serve;
use crate::{probe, tls_files};
use clients::Clients;

/// How many new clients are accepted before the present ones are served again.
const ACCEPTED_AT_ONCE: usize = 64;

/// Answers the kubelet's probes and the operator's questions about one server, until SIGTERM.
pub(crate) fn serve(options: Serve) -> Result<(), String> {
    // The first process of a container does not end by a signal that it does not handle.
    let stop = stop_signals().map_err(|e| format!("cannot handle signals: {e}"))?;
    let listener = http::listen(options.listen)?;
    let server = Server::new(listener, options.zookeeper)
        .map_err(|e| format!("cannot answer on port {}: {e}", options.listen))?;
    let control = http::listen(options.control)?;
    let Serve {
        zookeeper,
        elections,
        conf,
        volumes,
        credentials,
        ..
    } = options;
    let kept = credentials.clone();
    thread::spawn(move || tls_files::keep(&kept, elections));
    // The probes are answered whatever becomes of this thread.
    thread::spawn(move || {
        Arc::new(Control::new(zookeeper, conf, volumes, credentials)).run(&control)
    });
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

#[derive(Debug)]
struct Server {
    listener: TcpListener,
    clients: Clients,
    /// A thread asks the ZooKeeper server once for each order.
    orders: Sender<()>,
    /// Whether an order is under way.
    is_asking: bool,
    answers: Receiver<Vec<u8>>,
    /// A byte arrives with each answer.
    wake: UnixStream,
}

impl Server {
    /// Answers on this listener about the ZooKeeper server on that port of the loopback interface.
    fn new(listener: TcpListener, zookeeper: u16) -> std::io::Result<Self> {
        listener.set_nonblocking(true)?;
        let (wake, waker) = UnixStream::pair()?;
        wake.set_nonblocking(true)?;
        let (sender, answers) = channel();
        let (orders, received) = channel::<()>();
        thread::spawn(move || {
            for () in received {
                let answer = probe::ask(zookeeper).map(|()| "ok".to_owned());
                if sender
                    .send(Connection::Close.response(http::TEXT, answer))
                    .is_err()
                {
                    return;
                }
                let _ = (&waker).write_all(&[0]);
            }
        });
        Ok(Self {
            listener,
            clients: Clients::default(),
            orders,
            is_asking: false,
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
        while let Ok(answer) = self.answers.try_recv() {
            self.is_asking = false;
            self.clients.answer(&answer);
        }
    }

    /// Has the server asked, if a client waits for that.
    fn ask(&mut self) {
        if !self.is_asking && self.clients.wait() {
            self.is_asking = self.orders.send(()).is_ok();
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

#[cfg(test)]
mod tests;
