//! Gzip files: members one after the other, and zeros behind them.

use std::io::{self, BufRead, Read};

use flate2::bufread::GzDecoder;

/// Unpacks all members of a gzip file. Zeros behind the last one are ignored, as GNU gzip does: tapes and block devices
/// pad files with them. Anything else there is an error.
pub(crate) struct GzipMembers<R> {
    /// None at the end.
    member: Option<GzDecoder<R>>,
}

impl<R: BufRead> GzipMembers<R> {
    /// Unpacks `packed`, which starts with a member.
    pub fn new(packed: R) -> Self {
        Self { member: Some(GzDecoder::new(packed)) }
    }
}

impl<R: BufRead> Read for GzipMembers<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if into.is_empty() {
            return Ok(0);
        }
        while let Some(member) = &mut self.member {
            let read = member.read(into)?;
            if read > 0 {
                return Ok(read);
            }
            let Some(ended) = self.member.take() else { break };
            let mut packed = ended.into_inner();
            let padded = skip_zeros(&mut packed)?;
            if packed.fill_buf()?.is_empty() {
                break;
            }
            if padded {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "invalid gzip header after zeros"));
            }
            self.member = Some(GzDecoder::new(packed));
        }
        Ok(0)
    }
}

/// Skips zeros. Returns whether there were any.
fn skip_zeros(packed: &mut impl BufRead) -> io::Result<bool> {
    let mut any = false;
    loop {
        let ready = packed.fill_buf()?;
        let zeros = ready.iter().take_while(|&&byte| byte == 0).count();
        let more = zeros > 0 && zeros == ready.len();
        packed.consume(zeros);
        any |= zeros > 0;
        if !more {
            return Ok(any);
        }
    }
}
