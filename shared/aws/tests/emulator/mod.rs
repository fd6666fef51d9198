//! One emulator for all tests of a binary, with fresh tables, queues and a bucket for each test.
#![allow(dead_code, reason = "every test binary uses a part of it")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![expect(clippy::disallowed_methods, reason = "the emulator is waited for in real time")]

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_sdk_dynamodb::config::Credentials;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, GlobalSecondaryIndex, KeySchemaElement, KeyType, Projection, ProjectionType, ScalarAttributeType,
};
use tidemark_aws::tables::{self, Table};
use tidemark_aws::{AwsStore, StackNames};

/// How long the emulator may take to start.
const START: Duration = Duration::from_secs(60);

struct Emulator {
    url: String,
    /// Its end of the pipe closes when this process ends, however it ends; the shell then ends the emulator.
    _shell: Child,
}

/// The address of the emulator, started on first use.
pub(crate) fn url() -> &'static str {
    static EMULATOR: OnceLock<Emulator> = OnceLock::new();
    &EMULATOR.get_or_init(start).url
}

fn start() -> Emulator {
    let program = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../.venv/bin/ministack");
    assert!(program.exists(), "{} is missing: `make tools` installs the emulator", program.display());
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let shell = Command::new("/bin/sh")
        .args(["-c", "\"$0\" >/dev/null 2>&1 & pid=$!; cat >/dev/null; kill -9 $pid"])
        .arg(program)
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .env("HOME", std::env::temp_dir())
        .env("GATEWAY_PORT", port.to_string())
        .env("BIND_HOST", "127.0.0.1")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let url = format!("http://127.0.0.1:{port}");
    let until = std::time::Instant::now() + START;
    while !healthy(port) {
        assert!(std::time::Instant::now() < until, "the emulator did not start");
        std::thread::sleep(Duration::from_millis(100));
    }
    Emulator { url, _shell: shell }
}

/// Does it answer its health check?
fn healthy(port: u16) -> bool {
    use std::io::{Read, Write};
    let Ok(mut stream) = std::net::TcpStream::connect(("127.0.0.1", port)) else { return false };
    let _ = stream.set_read_timeout(Some(Duration::from_secs(5)));
    let asked = stream.write_all(b"GET /_ministack/health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    let mut answer = [0; 12];
    asked.is_ok() && stream.read_exact(&mut answer).is_ok() && answer.ends_with(b"200")
}

/// How to reach the emulator, or a proxy before it.
pub(crate) async fn config(endpoint: &str) -> SdkConfig {
    aws_config::defaults(BehaviorVersion::latest())
        .region(Region::new("us-east-1"))
        .credentials_provider(Credentials::new("test", "test", None, None, "test"))
        .endpoint_url(endpoint)
        .load()
        .await
}

/// A store that nobody else uses.
pub(crate) async fn fresh() -> AwsStore {
    fresh_behind(url()).await
}

/// The same, whose calls go through `endpoint`. Its resources are made directly.
pub(crate) async fn fresh_behind(endpoint: &str) -> AwsStore {
    static STORES: AtomicU32 = AtomicU32::new(0);
    let prefix = format!("t{}", STORES.fetch_add(1, Ordering::Relaxed));
    let direct = config(url()).await;
    let dynamo = aws_sdk_dynamodb::Client::new(&direct);
    for table in tables::ALL {
        create(&dynamo, &prefix, &table).await;
    }
    let sqs = aws_sdk_sqs::Client::new(&direct);
    let queue = |name: &str| sqs.create_queue().queue_name(format!("{prefix}-{name}")).send();
    let queue_url = queue("work").await.unwrap().queue_url.unwrap();
    let dead_letter_url = queue("dead").await.unwrap().queue_url.unwrap();
    let s3 = aws_sdk_s3::Client::from_conf(aws_sdk_s3::config::Builder::from(&direct).force_path_style(true).build());
    let bucket = format!("{prefix}-bucket");
    s3.create_bucket().bucket(&bucket).send().await.unwrap();
    let names = StackNames {
        ledger_table: format!("{prefix}-{}", tables::LEDGER.name),
        replay_table: format!("{prefix}-{}", tables::REPLAY.name),
        sources_table: format!("{prefix}-{}", tables::SOURCES.name),
        queue_url,
        dead_letter_url,
        bucket,
    };
    AwsStore::new(&config(endpoint).await, names, &prefix)
}

async fn create(dynamo: &aws_sdk_dynamodb::Client, prefix: &str, table: &Table) {
    let key = |name: &str, kind: KeyType| KeySchemaElement::builder().attribute_name(name).key_type(kind).build().unwrap();
    let mut attributes = vec![table.partition];
    attributes.extend(table.sort);
    let mut indexes = Vec::new();
    for index in table.indexes {
        attributes.extend([index.partition, index.sort]);
        let projection = Projection::builder().projection_type(ProjectionType::KeysOnly).build();
        let built = GlobalSecondaryIndex::builder()
            .index_name(index.name)
            .key_schema(key(index.partition.0, KeyType::Hash))
            .key_schema(key(index.sort.0, KeyType::Range))
            .projection(projection);
        indexes.push(built.build().unwrap());
    }
    attributes.sort_unstable();
    attributes.dedup();
    let mut create = dynamo
        .create_table()
        .table_name(format!("{prefix}-{}", table.name))
        .billing_mode(BillingMode::PayPerRequest)
        .key_schema(key(table.partition.0, KeyType::Hash))
        .set_global_secondary_indexes((!indexes.is_empty()).then_some(indexes));
    if let Some((sort, _)) = table.sort {
        create = create.key_schema(key(sort, KeyType::Range));
    }
    for (name, kind) in attributes {
        let kind = if kind == "N" { ScalarAttributeType::N } else { ScalarAttributeType::S };
        create = create.attribute_definitions(AttributeDefinition::builder().attribute_name(name).attribute_type(kind).build().unwrap());
    }
    create.send().await.unwrap();
}
