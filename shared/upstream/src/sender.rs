//! HTTP out the other way: sends a delivery to a receiver that a person named.

use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tidemark_domain::Fault;
use url::Url;

use crate::fault::shown;
use crate::tls::Trust;

/// Longest wait for an answer.
const ANSWER: Duration = Duration::from_secs(30);
/// Largest answer that is read.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// Sends deliveries over one pool of connections.
pub struct Sender {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
}

impl Sender {
    /// A sender that trusts the public certificate authorities.
    pub fn new() -> Result<Self, Fault> {
        let mut http = HttpConnector::new();
        http.enforce_http(false);
        http.set_nodelay(true);
        let https = HttpsConnector::from((http, Trust::new(&[])?.config(&[])?));
        Ok(Self { client: Client::builder(TokioExecutor::new()).build(https) })
    }

    /// Posts `body` as JSON; the status and the text of the answer.
    pub async fn post(&self, url: &str, headers: &[(String, String)], body: Bytes) -> Result<(u16, String), Fault> {
        let place = Url::parse(url)
            .map(|url| shown(&url))
            .map_err(|error| Fault::rejected("sender.request", format!("this is no URL: {error}")))?;
        let mut request = Request::builder().method(Method::POST).uri(url).header(header::CONTENT_TYPE, "application/json");
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let request =
            request.body(Full::new(body)).map_err(|error| Fault::rejected("sender.request", format!("cannot ask {place}: {error}")))?;
        let silent = |reason: String| Fault::retryable("sender.unreachable", format!("{place} does not answer: {reason}"));
        let exchange = async {
            let answer = self.client.request(request).await.map_err(|error| silent(error.to_string()))?;
            let status = answer.status().as_u16();
            let text = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await.map_err(|error| silent(error.to_string()))?;
            Ok((status, String::from_utf8_lossy(&text.to_bytes()).into_owned()))
        };
        tokio::time::timeout(ANSWER, exchange).await.unwrap_or_else(|_| Err(silent("it took too long".into())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn no_fault_repeats_a_query_string() {
        let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let sender = Sender::new().unwrap();
        for url in [format!("http://{closed}/a?key=s3cret"), "no url?key=s3cret".into(), "http://[::1/?key=s3cret".into()] {
            let fault = sender.post(&url, &[], Bytes::new()).await.unwrap_err();
            assert!(!fault.to_string().contains("s3cret"), "{fault}");
        }
    }
}
