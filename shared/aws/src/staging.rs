//! Bytes on their way into S3. Memory stays flat however large the object is: what fits one part is held, and
//! everything beyond goes to a private key in parts. Nothing becomes visible before digest and size are checked.

use std::sync::atomic::{AtomicU64, Ordering};

use aws_sdk_s3::primitives::ByteStream as SdkStream;
use aws_sdk_s3::types::{ChecksumAlgorithm, CompletedMultipartUpload, CompletedPart};
use bytes::Bytes;
use tidemark_domain::digest::DigestWriter;
use tidemark_domain::{Fault, Sha256Digest};
use tidemark_pipeline::ports::{ByteStream as _, Staging};
use tokio::task::JoinSet;

use crate::artifacts::{AwsReader, artifact_key, code};
use crate::failure::fault;
use crate::stack::AwsStore;

/// The first parts; an object up to this size is held and written at once.
pub(crate) const PART_BYTES: usize = 8 * 1024 * 1024;
/// Parts double in size after so many, up to three times: 10,000 parts then hold 492 GiB.
const PARTS_PER_SIZE: usize = 1_000;
const DOUBLINGS_MAX: usize = 3;
/// Most parts of an upload: S3's own limit.
const PARTS_MAX: usize = 10_000;
/// Most parts on their way at once. With the one that fills up, three are held.
const PARTS_IN_FLIGHT_MAX: usize = 2;
/// The largest object that one CopyObject copies: S3's own limit.
pub(crate) const COPY_BYTES_MAX: u64 = 5_000_000_000;
/// What the bytes are is known to the ledger, and may differ between entities that share them.
pub(crate) const MEDIA_TYPE: &str = "application/octet-stream";

/// Tells the stagings of one process apart.
static STAGINGS: AtomicU64 = AtomicU64::new(0);

/// The size of a part, counted from 0.
const fn part_bytes(part: usize) -> usize {
    let doublings = part / PARTS_PER_SIZE;
    PART_BYTES << if doublings < DOUBLINGS_MAX { doublings } else { DOUBLINGS_MAX }
}

/// The largest object that all parts hold (I14).
const fn object_bytes_max() -> u64 {
    let (mut part, mut sum) = (0, 0);
    while part < PARTS_MAX {
        sum += part_bytes(part) as u64;
        part += 1;
    }
    sum
}

const OBJECT_BYTES_MAX: u64 = object_bytes_max();

/// Bytes on their way into an [`AwsStore`]. Dropped without a promotion, they are never seen; a lifecycle rule
/// of the bucket collects what was sent.
pub struct AwsStaging {
    store: AwsStore,
    key: String,
    digest: DigestWriter,
    filling: Vec<u8>,
    upload: Option<Upload>,
    /// Why it failed: bytes that come after a gap are never taken.
    failed: Option<Fault>,
}

/// A multipart upload to the private key.
struct Upload {
    id: String,
    begun: usize,
    flying: JoinSet<Result<(CompletedPart, usize), Fault>>,
    flying_bytes: usize,
    arrived: Vec<CompletedPart>,
}

impl AwsStaging {
    /// Begins to take bytes.
    pub(crate) fn begin(store: &AwsStore, label: &str) -> Self {
        let number = STAGINGS.fetch_add(1, Ordering::Relaxed);
        Self {
            store: store.clone(),
            key: format!("staging/{}/{number}", Sha256Digest::of(label.as_bytes())),
            digest: DigestWriter::default(),
            filling: Vec::new(),
            upload: None,
            failed: None,
        }
    }

    /// How many bytes are in memory now: three parts at most.
    pub fn held_bytes(&self) -> usize {
        self.filling.len() + self.upload.as_ref().map_or(0, |upload| upload.flying_bytes)
    }

    async fn take(&mut self, mut bytes: Bytes) -> Result<(), Fault> {
        has_room(self.digest.size_bytes(), bytes.len())?;
        self.digest.update(&bytes);
        while !bytes.is_empty() {
            let part_bytes = part_bytes(self.upload.as_ref().map_or(0, |upload| upload.begun));
            if self.filling.len() == part_bytes {
                self.send().await?;
                continue;
            }
            let piece = bytes.split_to(bytes.len().min(part_bytes - self.filling.len()));
            self.filling.extend_from_slice(&piece);
        }
        Ok(())
    }

    /// Sends the part that was filled, as soon as there is room for another one on the way.
    async fn send(&mut self) -> Result<(), Fault> {
        let upload = match &mut self.upload {
            Some(upload) => upload,
            None => self.upload.insert(Upload::begin(&self.store, &self.key).await?),
        };
        while upload.flying.len() >= PARTS_IN_FLIGHT_MAX {
            upload.land().await?;
        }
        let room = part_bytes(upload.begun + 1);
        let part = std::mem::replace(&mut self.filling, Vec::with_capacity(room));
        upload.send(&self.store, &self.key, part.into());
        Ok(())
    }

    /// Stops the upload, if there is one, and removes its parts.
    async fn abort(&mut self) -> Result<(), Fault> {
        let Some(mut upload) = self.upload.take() else { return Ok(()) };
        // A part that arrives after the abort would stay.
        upload.flying.shutdown().await;
        self.store.abort_upload(&self.key, &upload.id).await
    }

    /// All parts become one object at the private key. Its entity tag, once it is sure whose bytes it has.
    async fn complete(&mut self, sha256: &Sha256Digest) -> Result<String, Fault> {
        self.send().await?;
        let lost = || Fault::retryable("artifacts.staging", "the staged bytes are gone");
        let upload = self.upload.as_mut().ok_or_else(lost)?;
        while !upload.flying.is_empty() {
            upload.land().await?;
        }
        upload.arrived.sort_by_key(CompletedPart::part_number);
        let parts = CompletedMultipartUpload::builder().set_parts(Some(std::mem::take(&mut upload.arrived))).build();
        let s3 = &self.store.inner.s3;
        let complete = s3.complete_multipart_upload().bucket(&self.store.inner.names.bucket).key(&self.key);
        match complete.upload_id(&upload.id).multipart_upload(parts).send().await {
            Ok(output) if output.e_tag.is_some() => return output.e_tag.ok_or_else(lost),
            Ok(_) => {}
            // Done by an earlier try whose reply was lost.
            Err(error) if code(&error) == Some("NoSuchUpload") => {}
            Err(error) => return Err(fault("CompleteMultipartUpload", &error)),
        }
        // A process that chose the same label and number may have written here: so the bytes are looked at.
        let found = self.store.get(&self.key).await?.ok_or_else(lost)?;
        let etag = found.etag.ok_or_else(lost)?;
        let mut reader = AwsReader::of(found.body, *sha256);
        while reader.chunk().await.map_err(|_| lost())?.is_some() {}
        Ok(etag)
    }

    async fn promote_parts(&mut self, sha256: &Sha256Digest, size_bytes: u64) -> Result<(), Fault> {
        let address = artifact_key(sha256);
        if self.store.stored_bytes(&address).await? == Some(size_bytes) {
            return self.abort().await;
        }
        let etag = self.complete(sha256).await?;
        self.upload = None;
        let copied = self.store.copy_staged(&self.key, &etag, &address, size_bytes).await;
        self.store.remove_staged(&self.key).await;
        copied
    }
}

impl Staging for AwsStaging {
    async fn write(&mut self, bytes: Bytes) -> Result<(), Fault> {
        if let Some(fault) = &self.failed {
            return Err(fault.clone());
        }
        let taken = self.take(bytes).await;
        if let Err(fault) = &taken {
            self.failed = Some(fault.clone());
            // Who hears of the failure drops this; what remains is collected by the lifecycle rule.
            let _ = self.abort().await;
        }
        taken
    }

    async fn promote(mut self, sha256: &Sha256Digest, size_bytes: u64) -> Result<(), Fault> {
        if let Some(fault) = self.failed {
            return Err(fault);
        }
        if (self.digest.size_bytes(), self.digest.clone().finish()) != (size_bytes, *sha256) {
            let _ = self.abort().await;
            return Err(Fault::permanent("artifacts.mismatch", "the staged bytes are not those that were announced"));
        }
        if self.upload.is_none() {
            let bytes = std::mem::take(&mut self.filling).into();
            return self.store.put_once(&artifact_key(sha256), &bytes, sha256, MEDIA_TYPE).await;
        }
        let promoted = self.promote_parts(sha256, size_bytes).await;
        if promoted.is_err() {
            let _ = self.abort().await;
        }
        promoted
    }

    async fn discard(mut self) -> Result<(), Fault> {
        self.abort().await
    }
}

impl Upload {
    async fn begin(store: &AwsStore, key: &str) -> Result<Self, Fault> {
        let id = store.begin_upload(key).await?;
        Ok(Self { id, begun: 0, flying: JoinSet::new(), flying_bytes: 0, arrived: Vec::new() })
    }

    fn send(&mut self, store: &AwsStore, key: &str, bytes: Bytes) {
        self.begun += 1;
        self.flying_bytes += bytes.len();
        let (number, size_bytes) = (i32::try_from(self.begun).unwrap_or(i32::MAX), bytes.len());
        let part = store.inner.s3.upload_part().bucket(&store.inner.names.bucket).key(key).upload_id(&self.id);
        let sending = part.part_number(number).checksum_algorithm(ChecksumAlgorithm::Crc32).body(SdkStream::from(bytes)).send();
        self.flying.spawn(async move {
            let sent = sending.await.map_err(|error| fault("UploadPart", &error))?;
            let part = CompletedPart::builder().part_number(number).set_e_tag(sent.e_tag).set_checksum_crc32(sent.checksum_crc32);
            Ok((part.build(), size_bytes))
        });
    }

    /// Waits for one part to arrive.
    async fn land(&mut self) -> Result<(), Fault> {
        let stopped = || Fault::retryable("artifacts.staging", "sending a part was broken off");
        let (part, size_bytes) = self.flying.join_next().await.ok_or_else(stopped)?.map_err(|_| stopped())??;
        self.flying_bytes -= size_bytes;
        self.arrived.push(part);
        Ok(())
    }
}

fn has_room(taken_bytes: u64, more_bytes: usize) -> Result<(), Fault> {
    if taken_bytes.saturating_add(more_bytes as u64) <= OBJECT_BYTES_MAX {
        return Ok(());
    }
    Err(Fault::permanent("artifacts.too_large", format!("an object of more than {OBJECT_BYTES_MAX} bytes cannot be stored"))
        .remedy("lower `limits.body_bytes_max` of the source, and watch its parts instead of the whole"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_thousand_parts_hold_the_largest_object() {
        assert_eq!(OBJECT_BYTES_MAX >> 30, 492);
        assert!(part_bytes(PARTS_MAX) * (PARTS_IN_FLIGHT_MAX + 1) <= 192 * 1024 * 1024, "memory stays flat");
        assert!(has_room(OBJECT_BYTES_MAX - 1, 1).is_ok());
        assert_eq!(has_room(OBJECT_BYTES_MAX, 1).unwrap_err().code, "artifacts.too_large");
        assert!(has_room(u64::MAX, 1).is_err());
    }
}
