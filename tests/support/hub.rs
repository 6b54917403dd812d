//! A Hugging Face hub on the loopback interface, as far as downloads need one: listing, metadata, ranges, redirects,
//! and the ways in which a hub can misbehave.
#![allow(dead_code, reason = "each test binary uses its own part")]

use lifelong::engine::hub::Digest;
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

pub const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// How a file is given.
#[derive(Clone, Debug)]
pub enum Manner {
    /// As it is.
    Whole,
    /// The connection closes after so many bytes of the file, as many times as said; then as it is.
    CutOff { after: usize, times: usize },
    /// After so many bytes nothing more comes, and the connection stays open.
    Stall { after: usize },
    /// Every answer is the whole file, whatever range was asked for.
    IgnoreRange,
    /// At another address on the same server.
    Redirect,
    /// Not at all.
    Status(u16),
}

#[derive(Clone)]
pub struct Served {
    pub bytes: Vec<u8>,
    pub manner: Manner,
    /// Large files are tagged with their sha256, small ones with a git hash.
    pub large: bool,
}

impl Served {
    pub fn new(bytes: &[u8], manner: Manner) -> Served {
        Served { bytes: bytes.to_vec(), manner, large: true }
    }
}

/// One request as the server saw it.
#[derive(Clone, Debug)]
pub struct Request {
    pub path: String,
    pub headers: HashMap<String, String>,
}

impl Request {
    pub fn range(&self) -> Option<&str> {
        self.headers.get("range").map(String::as_str)
    }
}

#[derive(Default)]
struct State {
    files: HashMap<String, Served>,
    requests: Vec<Request>,
    /// Requests whose bytes have been sent as far as they will be.
    answered: usize,
}

type Shared = Arc<(Mutex<State>, Condvar)>;

pub struct FakeHub {
    pub endpoint: String,
    shared: Shared,
}

impl FakeHub {
    /// A hub with one repository, `org/model`.
    pub fn start(files: &[(&str, Served)]) -> FakeHub {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let shared = Shared::default();
        shared.0.lock().unwrap().files =
            files.iter().map(|(name, served)| (name.to_string(), served.clone())).collect();
        let server = shared.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = server.clone();
                thread::spawn(move || {
                    // A client that hangs up is part of the tests.
                    let _ = answer(stream, &shared);
                });
            }
        });
        FakeHub { endpoint, shared }
    }

    /// Replaces a file.
    pub fn serve(&self, name: &str, served: Served) {
        self.shared.0.lock().unwrap().files.insert(name.into(), served);
    }

    /// Requests for file contents (metadata requests for one byte are left out).
    pub fn downloads(&self, name: &str) -> Vec<Request> {
        let requests = self.requests();
        requests.into_iter().filter(|request| request.path.ends_with(name) && !is_metadata(request)).collect()
    }

    pub fn requests(&self) -> Vec<Request> {
        self.shared.0.lock().unwrap().requests.clone()
    }

    /// Waits until so many content requests have got all the bytes they will get.
    pub fn wait_for_answers(&self, count: usize) {
        let (state, changed) = &*self.shared;
        drop(changed.wait_while(state.lock().unwrap(), |state| state.answered < count).unwrap());
    }
}

fn is_metadata(request: &Request) -> bool {
    request.range() == Some("bytes=0-0")
}

fn answer(stream: TcpStream, shared: &Shared) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let Some(path) = line.split_whitespace().nth(1).map(String::from) else {
        return Ok(());
    };
    let mut headers = HashMap::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 || line == "\r\n" {
            break;
        }
        if let Some((key, value)) = line.split_once(':') {
            headers.insert(key.to_ascii_lowercase(), value.trim().to_string());
        }
    }
    let request = Request { path, headers };
    shared.0.lock().unwrap().requests.push(request.clone());
    if request.path.starts_with("/api/models/org/model/revision/") {
        return list(stream, shared);
    }
    let direct = request.path.strip_prefix("/elsewhere/");
    let name =
        direct.or_else(|| request.path.strip_prefix("/org/model/resolve/")?.split_once('/').map(|(_, name)| name));
    let served = name.and_then(|name| shared.0.lock().unwrap().files.get(name).cloned());
    match (name, served) {
        (Some(name), Some(served)) => give(stream, shared, &request, name, served, direct.is_some()),
        _ => status(stream, 404),
    }
}

fn list(mut stream: TcpStream, shared: &Shared) -> std::io::Result<()> {
    let mut names: Vec<String> = shared.0.lock().unwrap().files.keys().cloned().collect();
    names.sort();
    let siblings: Vec<_> = names.iter().map(|name| serde_json::json!({ "rfilename": name })).collect();
    let body = serde_json::json!({ "sha": COMMIT, "siblings": siblings }).to_string();
    write!(
        stream,
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    )
}

fn status(mut stream: TcpStream, code: u16) -> std::io::Result<()> {
    write!(stream, "HTTP/1.1 {code} No\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
}

fn give(
    mut stream: TcpStream,
    shared: &Shared,
    request: &Request,
    name: &str,
    served: Served,
    direct: bool,
) -> std::io::Result<()> {
    let metadata = is_metadata(request);
    let (state, changed) = &**shared;
    let mut sent_to = served.bytes.len();
    let mut stalls = false;
    match served.manner {
        Manner::Status(code) => return status(stream, code),
        Manner::Redirect if !direct => {
            let tag = tag(&served);
            return write!(
                stream,
                "HTTP/1.1 302 Found\r\nlocation: /elsewhere/{name}\r\nx-repo-commit: {COMMIT}\r\nx-linked-etag: \"{tag}\"\r\n\
                 content-length: 0\r\nconnection: close\r\n\r\n"
            );
        }
        Manner::CutOff { after, times } if !metadata && times > 0 => {
            sent_to = after;
            let left = Manner::CutOff { after, times: times - 1 };
            state.lock().unwrap().files.insert(name.into(), Served { manner: left, ..served.clone() });
        }
        Manner::Stall { after } if !metadata => {
            sent_to = after;
            stalls = true;
        }
        _ => {}
    }
    let asked = request.range().and_then(|range| range.strip_prefix("bytes=")).and_then(|range| range.split_once('-'));
    let (first, last) = match asked {
        Some(_) if matches!(served.manner, Manner::IgnoreRange) && !metadata => (0, served.bytes.len()),
        Some((first, last)) => {
            let first: usize = first.parse().unwrap();
            (first, last.parse::<usize>().map_or(served.bytes.len(), |last| last + 1))
        }
        None => (0, served.bytes.len()),
    };
    let size = served.bytes.len();
    if first >= size {
        return status(stream, 416);
    }
    write!(
        stream,
        "HTTP/1.1 206 Partial\r\nx-repo-commit: {COMMIT}\r\netag: \"{}\"\r\ncontent-range: bytes {first}-{}/{size}\r\n\
         content-length: {}\r\nconnection: close\r\n\r\n",
        tag(&served),
        last - 1,
        last - first
    )?;
    stream.write_all(&served.bytes[first..last.min(sent_to.max(first))])?;
    stream.flush()?;
    if !metadata {
        state.lock().unwrap().answered += 1;
        changed.notify_all();
    }
    if stalls {
        // Until the client hangs up.
        let _ = stream.read(&mut [0]);
    }
    Ok(())
}

fn tag(served: &Served) -> String {
    let digest = Digest::of(&served.bytes).to_string();
    if served.large { digest } else { digest[..40].to_string() }
}
