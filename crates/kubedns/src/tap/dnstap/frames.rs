//! Frame Streams in their bidirectional form: control frames, and data frames, each after its
//! length (<https://farsightsec.github.io/fstrm/>).

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt as _};

/// The content type of dnstap.
pub(super) const CONTENT: &[u8] = b"protobuf:dnstap.Dnstap";
pub(super) const ACCEPT: u32 = 1;
pub(super) const START: u32 = 2;
pub(super) const STOP: u32 = 3;
pub(super) const READY: u32 = 4;
pub(super) const FINISH: u32 = 5;
/// Type of the control frame field that holds a content type.
const CONTENT_TYPE: u32 = 1;
/// The longest accepted control frame, in octets.
const MAX_CONTROL: u32 = 512;

/// Encodes a control frame of a type; READY, ACCEPT and START contain the content type.
pub(super) fn control(kind: u32) -> Vec<u8> {
    let mut frame = kind.to_be_bytes().to_vec();
    if kind == READY || kind == START || kind == ACCEPT {
        frame.extend(CONTENT_TYPE.to_be_bytes());
        data(CONTENT, &mut frame);
    }
    // A data length of zero marks a control frame.
    let mut whole = vec![0; 4];
    data(&frame, &mut whole);
    whole
}

/// Appends a data frame.
pub(super) fn data(octets: &[u8], out: &mut Vec<u8>) {
    out.extend(
        u32::try_from(octets.len())
            .unwrap_or(u32::MAX)
            .to_be_bytes(),
    );
    out.extend(octets);
}

/// A received control frame.
#[derive(Debug)]
pub(super) struct Control {
    pub(super) kind: u32,
    fields: Vec<u8>,
}

impl Control {
    /// Whether the reader accepts our content type.
    pub(super) fn accepts(&self) -> bool {
        self.kind == ACCEPT
            && self
                .fields
                .windows(CONTENT.len())
                .any(|field| field == CONTENT)
    }
}

/// Reads a control frame.
pub(super) async fn read_control(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Control> {
    let wrong = || {
        io::Error::new(
            io::ErrorKind::InvalidData,
            "not a control frame of frame streams",
        )
    };
    let (escape, length) = (stream.read_u32().await?, stream.read_u32().await?);
    if escape != 0 || !(4..=MAX_CONTROL).contains(&length) {
        return Err(wrong());
    }
    let kind = stream.read_u32().await?;
    let mut fields = vec![0; usize::try_from(length - 4).map_err(|_| wrong())?];
    stream.read_exact(&mut fields).await?;
    Ok(Control { kind, fields })
}
