//! Whether the hub can be connected to at all, found out in seconds: a machine without a network must not wait for
//! the operating system's own limits (minutes) before the next source is tried.

use std::net::{TcpStream, ToSocketAddrs};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

/// Addresses of the endpoint that are tried, at once.
const ADDRESSES: usize = 4;

/// Resolves the endpoint's name and connects to it, within `limit` altogether.
///
/// # Errors
/// The reason in words.
pub(super) fn connect(endpoint: &str, limit: Duration) -> Result<(), String> {
    let target = host_and_port(endpoint).ok_or("HF_ENDPOINT must be http://HOST[:PORT] or https://HOST[:PORT]")?;
    let (sender, answers) = mpsc::channel();
    // Name resolution cannot be limited in time, so it gets a thread that may outlive the wait.
    thread::spawn(move || match target.to_socket_addrs() {
        Ok(addresses) => {
            for address in addresses.take(ADDRESSES) {
                let sender = sender.clone();
                thread::spawn(move || sender.send(TcpStream::connect_timeout(&address, limit).map(drop)));
            }
        }
        Err(error) => drop(sender.send(Err(error))),
    });
    let deadline = Instant::now() + limit;
    let mut reason = "its name has no address".to_string();
    loop {
        match answers.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) => reason = error.to_string(),
            Err(RecvTimeoutError::Disconnected) => return Err(reason),
            Err(RecvTimeoutError::Timeout) => return Err(format!("no connection within {} s", limit.as_secs_f32())),
        }
    }
}

/// `HOST:PORT` of a URL.
fn host_and_port(endpoint: &str) -> Option<String> {
    let (scheme, rest) = endpoint.split_once("://")?;
    let port = match scheme {
        "http" => 80,
        "https" => 443,
        _ => return None,
    };
    let authority = rest.split(['/', '?', '#']).next()?;
    let host = authority.rsplit('@').next().filter(|host| !host.is_empty())?;
    // A colon after the last bracket separates a port; those inside belong to an IPv6 address.
    let has_port = host.rsplit(']').next().is_some_and(|after| after.contains(':'));
    Some(if has_port { host.to_string() } else { format!("{host}:{port}") })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn host_and_port_of_urls() {
        let cases = [
            ("https://hub.example", Some("hub.example:443")),
            ("http://hub.example/prefix", Some("hub.example:80")),
            ("http://127.0.0.1:8080", Some("127.0.0.1:8080")),
            ("https://user:word@hub.example:1/x", Some("hub.example:1")),
            ("http://[::1]", Some("[::1]:80")),
            ("http://[::1]:81", Some("[::1]:81")),
            ("hub.example", None),
            ("ftp://hub.example", None),
            ("https://", None),
        ];
        for (endpoint, expected) in cases {
            assert_eq!(host_and_port(endpoint).as_deref(), expected, "{endpoint}");
        }
    }

    #[test]
    fn a_listening_port_is_reached_and_a_closed_one_is_refused_at_once() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        assert_eq!(connect(&endpoint, Duration::from_secs(20)), Ok(()));
        drop(listener);
        let reason = connect(&endpoint, Duration::from_secs(20)).unwrap_err();
        assert!(reason.contains("refused"), "{reason}");
    }
}
