//! The little of HTTP/1.1 that the program speaks: requests without a body, and short answers.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::time::Duration;

/// How long to wait when the system has no room for another connection.
pub(crate) const PAUSE: Duration = Duration::from_millis(50);

/// The type of answers as text.
pub(crate) const TEXT: &str = "text/plain; charset=utf-8";
/// The type of answers as JSON.
pub(crate) const JSON: &str = "application/json";

/// Listens on every address of the pod, whichever family it has.
pub(crate) fn listen(port: u16) -> Result<TcpListener, String> {
    TcpListener::bind(SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)))
        .or_else(|_| TcpListener::bind(SocketAddr::from((Ipv4Addr::UNSPECIFIED, port))))
        .map_err(|error| format!("cannot listen on port {port}: {error}"))
}

/// Whether these bytes are a whole request.
pub(crate) fn is_complete(head: &[u8]) -> bool {
    let ends = |end: &[u8]| head.windows(end.len()).any(|bytes| bytes == end);
    ends(b"\r\n\r\n") || ends(b"\n\n")
}

/// The path that a request asks for, if it only asks.
pub(crate) fn path(head: &[u8]) -> Option<&str> {
    let line = head.split(|byte| *byte == b'\n').next()?;
    let mut words = str::from_utf8(line).ok()?.split_ascii_whitespace();
    match words.next()? {
        "GET" | "HEAD" => words.next()?.split('?').next(),
        _ => None,
    }
}

/// The path of a request for an act, and what it says of it: the values of these names, in their order. The values have no
/// escapes.
pub(crate) fn act<'a, const N: usize>(
    head: &'a [u8],
    names: [&str; N],
) -> Option<(&'a str, [Option<&'a str>; N])> {
    let line = head.split(|byte| *byte == b'\n').next()?;
    let mut words = str::from_utf8(line).ok()?.split_ascii_whitespace();
    let target = words
        .next()
        .filter(|method| *method == "POST")
        .and(words.next())?;
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let value = |name: &str| {
        let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        pairs.find(|(key, _)| *key == name).map(|(_, value)| value)
    };
    Some((path, names.map(value)))
}

/// What becomes of the connection after an answer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Connection {
    /// The program closes it.
    Close,
    /// Another request may follow.
    KeepAlive,
}

impl Connection {
    /// The answer with this content, or with the reason why there is none.
    pub(crate) fn response(self, kind: &str, answer: Result<String, String>) -> Vec<u8> {
        match answer {
            Ok(text) => self.render("200 OK", kind, &text),
            Err(why) => self.render("503 Service Unavailable", TEXT, &why),
        }
    }

    /// The answer to a request for something else than `known`.
    pub(crate) fn unknown(self, known: &str) -> Vec<u8> {
        self.render("404 Not Found", TEXT, &format!("ask for {known}"))
    }

    fn render(self, status: &str, kind: &str, text: &str) -> Vec<u8> {
        let after = match self {
            Self::Close => "close",
            Self::KeepAlive => "keep-alive",
        };
        format!(
            "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\
             Connection: {after}\r\n\r\n{text}",
            text.len()
        )
        .into_bytes()
    }
}
