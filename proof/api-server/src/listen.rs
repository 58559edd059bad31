//! The API server on loopback, for a program that is a process of its own.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

use super::service::ApiServer;

impl ApiServer {
    /// Listens on loopback until the runtime ends, and returns the address. Whoever connects is the client of
    /// this name; a request that gets no answer ends its connection.
    ///
    /// # Errors
    /// No port is free.
    pub async fn listen(&self, client: &str) -> io::Result<SocketAddr> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let (server, client) = (self.clone(), Arc::<str>::from(client));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (server, client) = (server.clone(), client.clone());
                let service = service_fn(move |request| server.answer(&client, request));
                let connection =
                    http1::Builder::new().serve_connection(TokioIo::new(stream), service);
                tokio::spawn(connection);
            }
        });
        Ok(address)
    }
}
