//! Loopback addresses that no other test uses.

use std::net::{Ipv4Addr, TcpListener};

use anyhow::{Result, bail};
use bellwether_ensemble::ServerId;
use bellwether_ensemble::desired::config::{CLIENT_PORT, ELECTION_PORT, QUORUM_PORT};

/// How many networks are tried before giving up.
const ATTEMPTS: usize = 100;
/// The host that holds the reservation; no server has this id.
const RESERVATION: u8 = 254;

/// A network 127.x.y.0/24 for one ensemble, so that every server has its usual ports.
#[derive(Debug)]
pub struct Network {
    x: u8,
    y: u8,
    _reservation: TcpListener,
}

impl Network {
    /// Takes a network that is free, for as long as the value lives. Other processes on this machine
    /// see the reservation.
    ///
    /// # Errors
    /// When the ports of ZooKeeper are taken on every address.
    pub fn reserve() -> Result<Self> {
        let mut taken = None;
        for _ in 0..ATTEMPTS {
            let (x, y) = (fastrand::u8(16..=250), fastrand::u8(..));
            let bind =
                |host: u8, port: u16| TcpListener::bind((Ipv4Addr::new(127, x, y, host), port));
            let Ok(reservation) = bind(RESERVATION, CLIENT_PORT) else {
                continue;
            };
            match [CLIENT_PORT, QUORUM_PORT, ELECTION_PORT].map(|port| bind(1, port)) {
                [Ok(_), Ok(_), Ok(_)] => {
                    return Ok(Self {
                        x,
                        y,
                        _reservation: reservation,
                    });
                }
                ports => taken = ports.into_iter().find_map(Result::err),
            }
        }
        bail!(
            "ports {CLIENT_PORT}, {QUORUM_PORT} and {ELECTION_PORT} of loopback are in use on every \
             address ({taken:?}): stop the ZooKeeper that listens on 0.0.0.0"
        )
    }

    /// The address of a server.
    pub fn address(&self, id: ServerId) -> Ipv4Addr {
        let host = u8::try_from(id.0).unwrap_or(RESERVATION - 1);
        Ipv4Addr::new(127, self.x, self.y, host)
    }
}
