//! A plain HTTP/1.1 client with one kept connection: fast enough to measure with, small enough to trust.

use std::net::SocketAddr;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

/// What came back.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// Header names in lower case, with their values.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: String,
}

impl Answer {
    /// The body as JSON.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }

    /// A header's value.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// One kept connection.
pub struct Client {
    stream: BufReader<TcpStream>,
}

impl Client {
    /// Connects.
    pub async fn connect(address: SocketAddr) -> std::io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream: BufReader::new(stream) })
    }

    /// The bytes of a request.
    pub fn request(method: &str, path: &str, headers: &[(String, String)], body: &[u8]) -> Vec<u8> {
        let mut request = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n", body.len());
        for (name, value) in headers {
            request.push_str(&format!("{name}: {value}\r\n"));
        }
        request.push_str("\r\n");
        let mut bytes = request.into_bytes();
        bytes.extend_from_slice(body);
        bytes
    }

    /// Sends a request and reads the whole answer.
    pub async fn send(&mut self, method: &str, path: &str, headers: &[(String, String)], body: &[u8]) -> std::io::Result<Answer> {
        self.stream.write_all(&Self::request(method, path, headers, body)).await?;
        self.read().await
    }

    /// Sends a request that was written beforehand, and reads no more of the answer than its status: a client
    /// that measures should not be what is measured.
    pub async fn exchange(&mut self, request: &[u8]) -> std::io::Result<u16> {
        self.stream.write_all(request).await?;
        let answer = self.stream.fill_buf().await?;
        let text = String::from_utf8_lossy(answer);
        // Answers to small deliveries are small: they come whole, or something is wrong.
        let (head, body) = text.split_once("\r\n\r\n").ok_or(std::io::ErrorKind::UnexpectedEof)?;
        let line = head.lines().find(|line| line.len() > 15 && line[..15].eq_ignore_ascii_case("content-length:"));
        let length: usize = line.and_then(|line| line[15..].trim().parse().ok()).unwrap_or(0);
        if body.len() < length {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        let status = head.get(9..12).and_then(|status| status.parse().ok()).unwrap_or(0);
        let read = head.len() + 4 + length;
        self.stream.consume(read);
        Ok(status)
    }

    async fn read(&mut self) -> std::io::Result<Answer> {
        let mut line = String::new();
        self.line(&mut line).await?;
        let status = line.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or(0);
        let mut headers = Vec::new();
        loop {
            self.line(&mut line).await?;
            let Some((name, value)) = line.trim_end().split_once(':') else { break };
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        let length = headers.iter().find(|(name, _)| name == "content-length").and_then(|(_, value)| value.parse().ok()).unwrap_or(0);
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body).await?;
        Ok(Answer { status, headers, body: String::from_utf8_lossy(&body).into_owned() })
    }

    async fn line(&mut self, line: &mut String) -> std::io::Result<()> {
        line.clear();
        match self.stream.read_line(line).await? {
            0 => Err(std::io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }
}
