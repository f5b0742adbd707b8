//! Bidirectional Frame Streams: control frames and data frames, each with its length in front
//! (<https://farsightsec.github.io/fstrm/>).

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

/// Encodes a control frame of type `kind`. READY, ACCEPT and START contain the content type.
pub(super) fn control_frame(kind: u32) -> Vec<u8> {
    let mut content = kind.to_be_bytes().to_vec();
    if kind == READY || kind == START || kind == ACCEPT {
        content.extend(CONTENT_TYPE.to_be_bytes());
        append_data_frame(CONTENT, &mut content);
    }

    // A data length of zero marks a control frame.
    let mut frame = vec![0; 4];
    append_data_frame(&content, &mut frame);
    frame
}

/// Appends `octets` with their length in front. This is the format of a data frame, of the content
/// of a control frame, and of the content type in a control frame.
pub(super) fn append_data_frame(octets: &[u8], out: &mut Vec<u8>) {
    out.extend(
        u32::try_from(octets.len())
            .unwrap_or(u32::MAX)
            .to_be_bytes(),
    );
    out.extend(octets);
}

/// A received control frame.
#[derive(Debug)]
pub(super) struct ControlFrame {
    pub(super) kind: u32,
    fields: Vec<u8>,
}

impl ControlFrame {
    /// Whether this frame says that the reader accepts our content type.
    pub(super) fn accepts(&self) -> bool {
        self.kind == ACCEPT
            && self
                .fields
                .windows(CONTENT.len())
                .any(|field| field == CONTENT)
    }
}

/// Reads a control frame.
pub(super) async fn read_control(
    stream: &mut (impl AsyncRead + Unpin),
) -> io::Result<ControlFrame> {
    // A data length of zero marks a control frame, whose own length follows.
    let data_length = stream.read_u32().await?;
    let length = stream.read_u32().await?;
    if data_length != 0 || !(4..=MAX_CONTROL).contains(&length) {
        return Err(not_a_control_frame());
    }

    let kind = stream.read_u32().await?;
    let fields_length = usize::try_from(length - 4).map_err(|_| not_a_control_frame())?;
    let mut fields = vec![0; fields_length];
    stream.read_exact(&mut fields).await?;
    Ok(ControlFrame { kind, fields })
}

fn not_a_control_frame() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        "the reader did not send a control frame of Frame Streams",
    )
}
