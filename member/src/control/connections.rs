//! The connections that are open: a fixed number.

use std::cmp::Reverse;
use std::io::Result;
use std::net::{IpAddr, Shutdown, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How many connections are open at once.
pub(super) const MOST: usize = 32;

/// One connection.
#[derive(Debug)]
struct Open {
    number: u64,
    stream: TcpStream,
    from: IpAddr,
    is_of_the_operator: bool,
}

/// The connections, the oldest first. Copies share them.
#[derive(Clone, Debug, Default)]
pub(super) struct Connections(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    open: Vec<Open>,
    next: u64,
}

/// A connection's place among all; dropped when the connection ends.
#[derive(Debug)]
pub(super) struct Ticket {
    connections: Connections,
    number: u64,
}

impl Connections {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Admits a connection. If there are too many, closes another one: of those that are not known to be the
    /// operator's, the oldest of the address that has most of them.
    pub(super) fn admit(&self, stream: &TcpStream) -> Result<Ticket> {
        let from = stream.peer_addr()?.ip().to_canonical();
        let stream = stream.try_clone()?;
        let mut state = self.state();
        let number = state.next;
        state.next += 1;
        state.open.push(Open {
            number,
            stream,
            from,
            is_of_the_operator: false,
        });
        if state.open.len() > MOST
            && let Some(place) = state.crowding()
        {
            let closed = state.open.remove(place);
            let _ = closed.stream.shutdown(Shutdown::Both);
        }
        Ok(Ticket {
            connections: self.clone(),
            number,
        })
    }
}

impl State {
    /// The place of the connection that has to go.
    fn crowding(&self) -> Option<usize> {
        let of = |from| self.open.iter().filter(|c| c.from == from).count();
        let places = self.open.iter().enumerate();
        let place =
            places.max_by_key(|(place, c)| (!c.is_of_the_operator, of(c.from), Reverse(*place)));
        place.map(|(place, _)| place)
    }
}

impl Ticket {
    /// The client has shown the operator's certificate.
    pub(super) fn is_of_the_operator(&self) {
        let mut state = self.connections.state();
        let own = state.open.iter_mut().find(|c| c.number == self.number);
        if let Some(own) = own {
            own.is_of_the_operator = true;
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut state = self.connections.state();
        state.open.retain(|c| c.number != self.number);
    }
}
