//! From the private key of a staging to a content address, inside S3. The address shows all bytes or none.

use aws_sdk_s3::types::{ChecksumAlgorithm, CompletedMultipartUpload, CompletedPart};
use futures_util::{StreamExt as _, TryStreamExt as _};
use tidemark_domain::Fault;

use crate::artifacts::{code, status, unless_conflict};
use crate::failure::fault;
use crate::stack::AwsStore;
use crate::staging::MEDIA_TYPE;

/// What one UploadPartCopy copies: a thousand of them are enough for the largest object.
const RANGE_BYTES: u64 = 512 * 1024 * 1024;
/// Most of them at once.
const RANGES_IN_FLIGHT_MAX: usize = 4;

impl AwsStore {
    /// This store with objects above `bytes` copied in parts, so that a test need not be that large.
    #[must_use]
    pub fn with_copy_bytes_max(mut self, bytes: u64) -> Self {
        self.copy_bytes_max = bytes.max(1);
        self
    }

    /// Makes the staged object visible at `address`, if it still is the one with this entity tag. One that is
    /// there already stays as it is.
    pub(crate) async fn copy_staged(&self, key: &str, etag: &str, address: &str, size_bytes: u64) -> Result<(), Fault> {
        let copied = if size_bytes > self.copy_bytes_max {
            self.copy_in_parts(key, etag, address, size_bytes).await
        } else {
            self.copy_at_once(key, etag, address).await
        };
        match copied {
            Ok(()) => Ok(()),
            // Somebody else put it there, or we did and the reply was lost.
            Err(_) if self.stored_bytes(address).await? == Some(size_bytes) => Ok(()),
            Err(fault) => Err(fault),
        }
    }

    async fn copy_at_once(&self, key: &str, etag: &str, address: &str) -> Result<(), Fault> {
        let bucket = &self.inner.names.bucket;
        let copy = self.inner.s3.copy_object().bucket(bucket).key(address).if_none_match("*");
        let copy = copy.copy_source(format!("{bucket}/{key}")).copy_source_if_match(etag);
        match unless_conflict(address, || copy.clone().send()).await {
            Ok(_) => Ok(()),
            Err(error) if status(&error) == Some(412) => Err(replaced()),
            Err(error) => Err(fault("CopyObject", &error)),
        }
    }

    async fn copy_in_parts(&self, key: &str, etag: &str, address: &str, size_bytes: u64) -> Result<(), Fault> {
        let upload = self.begin_upload(address).await?;
        let copied = self.copy_ranges(key, etag, address, &upload, size_bytes).await;
        if copied.is_err() {
            // Nothing of it was visible; what cannot be removed now is collected by the lifecycle rule.
            let _ = self.abort_upload(address, &upload).await;
        }
        copied
    }

    async fn copy_ranges(&self, key: &str, etag: &str, address: &str, upload: &str, size_bytes: u64) -> Result<(), Fault> {
        let range_bytes = RANGE_BYTES.min(self.copy_bytes_max);
        let bucket = &self.inner.names.bucket;
        let copies = (1i32..).zip(0..size_bytes.div_ceil(range_bytes)).map(|(number, range)| {
            let first = range * range_bytes;
            let last = (first + range_bytes).min(size_bytes) - 1;
            let copy = self.inner.s3.upload_part_copy().bucket(bucket).key(address).upload_id(upload).part_number(number);
            let copy = copy.copy_source(format!("{bucket}/{key}")).copy_source_if_match(etag);
            let copying = copy.copy_source_range(format!("bytes={first}-{last}")).send();
            async move {
                let copied = copying.await.map_err(|error| match status(&error) {
                    Some(412) => replaced(),
                    _ => fault("UploadPartCopy", &error),
                })?;
                let part = copied.copy_part_result.unwrap_or_else(|| aws_sdk_s3::types::CopyPartResult::builder().build());
                Ok(CompletedPart::builder().part_number(number).set_e_tag(part.e_tag).set_checksum_crc32(part.checksum_crc32).build())
            }
        });
        let parts: Vec<CompletedPart> = futures_util::stream::iter(copies).buffered(RANGES_IN_FLIGHT_MAX).try_collect().await?;
        let parts = CompletedMultipartUpload::builder().set_parts(Some(parts)).build();
        let complete = self.inner.s3.complete_multipart_upload().bucket(bucket).key(address).if_none_match("*");
        let completed = complete.upload_id(upload).multipart_upload(parts).send().await;
        completed.map(|_| ()).map_err(|error| fault("CompleteMultipartUpload", &error))
    }

    pub(crate) async fn begin_upload(&self, key: &str) -> Result<String, Fault> {
        let create = self.inner.s3.create_multipart_upload().bucket(&self.inner.names.bucket).key(key).content_type(MEDIA_TYPE);
        let created = create.checksum_algorithm(ChecksumAlgorithm::Crc32).send().await;
        let created = created.map_err(|error| fault("CreateMultipartUpload", &error))?;
        created.upload_id.ok_or_else(|| Fault::retryable("aws.failed", "AWS could not do CreateMultipartUpload: it has no id"))
    }

    /// Removes the parts of an upload. One that is not there is as good as removed.
    pub(crate) async fn abort_upload(&self, key: &str, upload: &str) -> Result<(), Fault> {
        let abort = self.inner.s3.abort_multipart_upload().bucket(&self.inner.names.bucket).key(key).upload_id(upload);
        match abort.send().await {
            Ok(_) => Ok(()),
            Err(error) if code(&error) == Some("NoSuchUpload") => Ok(()),
            Err(error) => Err(fault("AbortMultipartUpload", &error)),
        }
    }

    /// Removes a staged object. What cannot be removed now is collected by the lifecycle rule.
    pub(crate) async fn remove_staged(&self, key: &str) {
        if let Err(error) = self.inner.s3.delete_object().bucket(&self.inner.names.bucket).key(key).send().await {
            tracing::warn!(fault = %fault("DeleteObject", &error), "staged bytes remain until they expire");
        }
    }
}

/// Another process chose the same label and number, or a lifecycle rule was faster.
fn replaced() -> Fault {
    Fault::retryable("artifacts.staging", "the staged bytes were replaced before they could be copied")
}
