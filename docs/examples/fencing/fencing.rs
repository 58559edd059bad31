//! A resource that refuses the leaders of the past.
//!
//! Every request carries the fencing token of the leader that sends it. The resource keeps the greatest token that it
//! has seen beside its data and refuses smaller ones: a leader that was stopped for a minute and goes on does no harm.
//! Token and data are replaced together, so that neither a crash nor a restart forgets the token.
//!
//! `rustc fencing.rs && ./fencing FILE` reads requests from the standard input, one a line: TOKEN VALUE

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write as _};

/// One value and the token of the leader that wrote it, in a file.
struct Store {
    path: String,
    token: u64,
}

impl Store {
    /// Reads what the file has; there may be none yet.
    fn open(path: String) -> io::Result<Self> {
        let token = match fs::read_to_string(&path) {
            Ok(text) => {
                let first = text.lines().next().unwrap_or_default();
                first.parse().map_err(|_| ErrorKind::InvalidData)?
            }
            Err(error) if error.kind() == ErrorKind::NotFound => 0,
            Err(error) => return Err(error),
        };
        Ok(Self { path, token })
    }

    /// Whether the value was written; false for a token that is smaller than one before.
    fn write(&mut self, token: u64, value: &str) -> io::Result<bool> {
        if token < self.token {
            return Ok(false);
        }
        let next = format!("{}.new", self.path);
        let mut file = File::create(&next)?;
        write!(file, "{token}\n{value}")?;
        file.sync_all()?;
        fs::rename(next, &self.path)?;
        self.token = token;
        Ok(true)
    }
}

fn main() -> io::Result<()> {
    let path = std::env::args().nth(1).ok_or(ErrorKind::InvalidInput)?;
    let mut store = Store::open(path)?;
    for line in io::stdin().lines() {
        let line = line?;
        let (word, value) = line.split_once(' ').unwrap_or((&line, ""));
        // parse() takes a sign, too.
        let digits = word.bytes().all(|byte| byte.is_ascii_digit());
        match word.parse().ok().filter(|_| digits) {
            None => println!("refused: no token"),
            Some(token) if store.write(token, value)? => println!("written"),
            Some(token) => println!("refused: {token} is older than {}", store.token),
        }
    }
    Ok(())
}
