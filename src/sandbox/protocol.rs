//! What the sandbox and its launcher say to each other over the launcher's standard input, a socket.
//!
//! One request in, one response out, each a length in four little-endian bytes and JSON. The socket is also the life
//! line: when the asking side stops writing (it wants an end, or it died), the launcher ends the job.

use std::io::{self, Read, Write};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::job::{Collected, Ending, Job, Spent};
use super::{Layer, Layers};

/// Longest message either side accepts.
const MAX_MESSAGE_BYTES: u32 = 64 << 20;

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Request {
    pub work: Work,
    /// Layers the user lets go of by name.
    pub allow_missing: Vec<Layer>,
    /// Layers to treat as if the kernel refused them.
    pub simulate_missing: Vec<Layer>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Work {
    Run(Job),
    /// Do what each layer must refuse and tell how it went, instead of running a program.
    Probe,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Response {
    Finished(Finished),
    Refused(Refusal),
}

/// The job was not started.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Refusal {
    /// The layer that could not be set; `None` when the fault is elsewhere (no such program, a broken request).
    pub layer: Option<Layer>,
    pub why: String,
}

impl Refusal {
    pub fn other(why: impl Into<String>) -> Self {
        Refusal { layer: None, why: why.into() }
    }

    pub fn layer(layer: Layer, why: impl Into<String>) -> Self {
        Refusal { layer: Some(layer), why: why.into() }
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Finished {
    pub ending: Ending,
    pub layers: Layers,
    pub spent: Spent,
    pub report: Option<String>,
    pub collected: Vec<(String, Collected)>,
}

pub(super) fn send<T: Serialize>(stream: &mut impl Write, message: &T) -> io::Result<()> {
    let body = serde_json::to_vec(message).map_err(io::Error::other)?;
    let length = u32::try_from(body.len()).ok().filter(|length| *length <= MAX_MESSAGE_BYTES);
    let length = length.ok_or_else(|| io::Error::other(format!("a message of {} bytes is too long", body.len())))?;
    stream.write_all(&length.to_le_bytes())?;
    stream.write_all(&body)
}

pub(super) fn receive<T: DeserializeOwned>(stream: &mut impl Read) -> io::Result<T> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length);
    if length > MAX_MESSAGE_BYTES {
        return Err(io::Error::other(format!("a message of {length} bytes is too long")));
    }
    let mut body = vec![0; length as usize];
    stream.read_exact(&mut body)?;
    parse(&body)
}

/// Reads the body of a message.
pub(super) fn parse<T: DeserializeOwned>(body: &[u8]) -> io::Result<T> {
    serde_json::from_slice(body).map_err(io::Error::other)
}
