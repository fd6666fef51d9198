//! Bytes by their digest, in S3. They are written once and never change; what is read is checked against the
//! digest that named it.

use std::future::Future;
use std::time::Duration;

use aws_sdk_s3::config::http::HttpResponse;
use aws_sdk_s3::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_s3::presigning::PresigningConfig;
use aws_sdk_s3::primitives::ByteStream as SdkStream;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use tidemark_domain::backoff::Backoff;
use tidemark_domain::digest::DigestWriter;
use tidemark_domain::{Fault, Sha256Digest};
use tidemark_pipeline::ports::{ArtifactStore, ByteStream, Document};

use crate::failure::fault;
use crate::stack::AwsStore;
use crate::staging::AwsStaging;

/// How a write is tried again while another one to the same key is under way (409).
const CONFLICT: Backoff = Backoff { first_ms: 100, max_ms: 2_000, attempts_max: 8 };
/// How long a presigned link works.
const LINK: Duration = Duration::from_secs(5 * 60);

/// Where bytes are found by their digest.
pub(crate) fn artifact_key(sha256: &Sha256Digest) -> String {
    let digits = sha256.to_string();
    format!("artifacts/sha256/{}/{digits}", &digits[..2])
}

impl ArtifactStore for AwsStore {
    type Staging = AwsStaging;
    type Reader = AwsReader;

    async fn stage(&self, label: &str) -> Result<AwsStaging, Fault> {
        Ok(AwsStaging::begin(self, label))
    }

    async fn open(&self, sha256: &Sha256Digest) -> Result<Option<AwsReader>, Fault> {
        let found = self.get(&artifact_key(sha256)).await?;
        Ok(found.map(|found| AwsReader::of(found.body, *sha256)))
    }

    async fn put_documents(&self, documents: &[Document]) -> Result<(), Fault> {
        crate::documents::put(self, documents).await
    }

    async fn document(&self, key: &str) -> Result<Option<Vec<u8>>, Fault> {
        crate::documents::get(self, key).await
    }
}

/// An object that was found.
pub(crate) struct Found {
    pub(crate) body: SdkStream,
    pub(crate) size_bytes: u64,
    pub(crate) etag: Option<String>,
}

impl AwsStore {
    /// A link by which anybody can read the bytes with this digest for some minutes; `None` if they are not there.
    pub async fn presigned(&self, sha256: &Sha256Digest) -> Result<Option<String>, Fault> {
        let key = artifact_key(sha256);
        if self.stored_bytes(&key).await?.is_none() {
            return Ok(None);
        }
        let unsigned = |reason: String| Fault::permanent("artifacts.link", format!("a link cannot be signed: {reason}"));
        let lasting = PresigningConfig::expires_in(LINK).map_err(|error| unsigned(error.to_string()))?;
        let get = self.inner.s3.get_object().bucket(&self.inner.names.bucket).key(key);
        let request = get.presigned(lasting).await.map_err(|error| unsigned(error.to_string()))?;
        Ok(Some(request.uri().to_owned()))
    }

    /// The object at `key`, if it is there.
    pub(crate) async fn get(&self, key: &str) -> Result<Option<Found>, Fault> {
        match self.inner.s3.get_object().bucket(&self.inner.names.bucket).key(key).send().await {
            Ok(output) => Ok(Some(Found {
                size_bytes: output.content_length().and_then(|length| u64::try_from(length).ok()).unwrap_or_default(),
                etag: output.e_tag,
                body: output.body,
            })),
            Err(error) if error.as_service_error().is_some_and(|error| error.is_no_such_key()) => Ok(None),
            Err(error) => Err(fault("GetObject", &error)),
        }
    }

    /// How large the object at `key` is, if it is there.
    pub(crate) async fn stored_bytes(&self, key: &str) -> Result<Option<u64>, Fault> {
        match self.inner.s3.head_object().bucket(&self.inner.names.bucket).key(key).send().await {
            Ok(output) => Ok(output.content_length().and_then(|length| u64::try_from(length).ok())),
            Err(error) if error.as_service_error().is_some_and(|error| error.is_not_found()) => Ok(None),
            // An answer to HEAD has no body, and so no code.
            Err(error) if status(&error) == Some(403) => Err(Fault::permanent("aws.refused", "AWS refused HeadObject: 403")
                .remedy("compare the function's role and the stack's resources with the template, and deploy it again")),
            Err(error) => Err(fault("HeadObject", &error)),
        }
    }

    /// Writes an object, unless it is there: then it stays as it is. S3 checks the digest before it takes it.
    pub(crate) async fn put_once(&self, key: &str, bytes: &Bytes, sha256: &Sha256Digest, media_type: &str) -> Result<(), Fault> {
        let put = || {
            self.inner
                .s3
                .put_object()
                .bucket(&self.inner.names.bucket)
                .key(key)
                .if_none_match("*")
                .checksum_sha256(STANDARD.encode(sha256.as_bytes()))
                .content_type(media_type)
                .body(SdkStream::from(bytes.clone()))
                .send()
        };
        match unless_conflict(key, put).await {
            Ok(_) => Ok(()),
            // Ours after a lost reply, or another's: the same bytes, since the key names them.
            Err(error) if status(&error) == Some(412) => Ok(()),
            Err(error) => Err(fault("PutObject", &error)),
        }
    }
}

/// The HTTP status of an answer that was an error.
pub(crate) fn status<E>(error: &SdkError<E, HttpResponse>) -> Option<u16> {
    error.raw_response().map(|response| response.status().as_u16())
}

/// What AWS calls the error.
pub(crate) fn code<E: ProvideErrorMetadata>(error: &SdkError<E, HttpResponse>) -> Option<&str> {
    error.as_service_error().and_then(ProvideErrorMetadata::code)
}

/// Calls until the answer is another one than 409, within limits.
pub(crate) async fn unless_conflict<T, E, F>(seed: &str, mut call: impl FnMut() -> F) -> Result<T, SdkError<E, HttpResponse>>
where
    F: Future<Output = Result<T, SdkError<E, HttpResponse>>>,
{
    let mut attempt = 1;
    loop {
        match call().await {
            Err(error) if status(&error) == Some(409) && attempt < CONFLICT.attempts_max => {
                tokio::time::sleep(Duration::from_millis(CONFLICT.wait_ms(attempt, seed))).await;
                attempt += 1;
            }
            answer => return answer,
        }
    }
}

/// Bytes on their way out of an [`AwsStore`].
pub struct AwsReader {
    body: SdkStream,
    sha256: Sha256Digest,
    digest: DigestWriter,
    /// How it ended. A fault stays a fault: asking again never makes a short object look whole.
    end: Option<Result<(), Fault>>,
}

impl AwsReader {
    pub(crate) fn of(body: SdkStream, sha256: Sha256Digest) -> Self {
        Self { body, sha256, digest: DigestWriter::default(), end: None }
    }

    fn ended(&self) -> Result<(), Fault> {
        if self.digest.clone().finish() == self.sha256 {
            return Ok(());
        }
        Err(Fault::permanent("artifacts.damaged", format!("the object of {} no longer has the bytes that its name promises", self.sha256))
            .remedy("restore it from a backup or an earlier version of the object"))
    }
}

impl ByteStream for AwsReader {
    async fn chunk(&mut self) -> Result<Option<Bytes>, Fault> {
        if let Some(end) = &self.end {
            return end.clone().map(|()| None);
        }
        let end = match self.body.next().await {
            Some(Ok(bytes)) => {
                self.digest.update(&bytes);
                return Ok(Some(bytes));
            }
            Some(Err(_)) => Err(Fault::retryable("aws.unreachable", "the bytes of an object did not arrive whole")),
            None => self.ended(),
        };
        self.end = Some(end.clone());
        end.map(|()| None)
    }
}
