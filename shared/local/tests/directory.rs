//! A watched folder, from the file to the commit: nothing is lost over a restart, nothing half written is taken, and nothing
//! outside of the folder is read.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use tempfile::TempDir;
use tidemark_conformance::model::{ModelClock, ModelUpstream};
use tidemark_domain::directory::file_uri;
use tidemark_domain::{Fault, NoOp, Outcome, Source, Timestamp};
use tidemark_local::directory::list;
use tidemark_local::{LocalStore, LocalUpstream, StoreSettings};
use tidemark_pipeline::detect::directory::Watch;
use tidemark_pipeline::handle::{Attempt, HandlePorts, Handled, Lease, handle};
use tidemark_pipeline::ports::{ByteStream as _, Clock as _, Fetched, Ledger as _, Sources as _, Upstream as _};

/// Long after whatever the files of a test say of themselves.
fn later() -> Timestamp {
    "2100-01-01T00:00:00Z".parse().unwrap()
}

struct World {
    folder: TempDir,
    data: TempDir,
    source: Source,
    watch: Watch,
    clock: ModelClock,
}

impl World {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let directory = fs::canonicalize(folder.path()).unwrap().to_str().unwrap().to_owned();
        let source = Source::watching("in".parse().unwrap(), "https://example.org/", 60);
        let source = Source { url: None, poll: None, directory: Some(directory), ..source }.checked().unwrap();
        Self { folder, data: tempfile::tempdir().unwrap(), source, watch: Watch::default(), clock: ModelClock::at(later()) }
    }

    async fn store(&self) -> LocalStore {
        let store = LocalStore::open(self.data.path(), "w", StoreSettings::default()).unwrap();
        store.apply(std::slice::from_ref(&self.source), false, later()).await.unwrap();
        store
    }

    fn directory(&self) -> &str {
        self.source.directory.as_deref().unwrap()
    }

    fn write(&self, name: &str, bytes: &str) {
        let path = self.folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    /// Lists, compares, and handles all that is submitted; the results, sorted.
    async fn look(&mut self, store: &LocalStore) -> Vec<String> {
        let now = self.clock.now();
        let listing = list(self.directory(), now).await.unwrap();
        self.watch.compare(&self.source, store, store, listing, now).await.unwrap();
        let upstream = LocalUpstream::new(ModelUpstream::default());
        let ports = HandlePorts { ledger: store, artifacts: store, upstream: &upstream, replay: store, sources: store, clock: &self.clock };
        let mut ends = Vec::new();
        for delivery in store.receive(now, 60_000, 100).await.unwrap() {
            let attempt = Attempt {
                claimant: store.claimant(&delivery),
                lease: Lease::Ms(60_000),
                software_version: "test".into(),
                policy_set: "none".into(),
            };
            let handled = handle(&ports, &delivery.message, &attempt).await.unwrap();
            let Handled::Settled(outcome) = handled else { panic!("{handled:?}") };
            let name = delivery.message.source_uri.rsplit('/').next().unwrap().to_owned();
            let is_same = matches!(outcome, Outcome::NoOp { why: NoOp::SameAsHead { .. } });
            let Outcome::Committed { revision, .. } = outcome else {
                assert!(is_same, "{outcome:?}");
                ends.push(format!("{name} the same"));
                store.ack(&delivery).await.unwrap();
                continue;
            };
            ends.push(format!("{name} {revision}"));
            store.ack(&delivery).await.unwrap();
        }
        self.clock.advance(1_000);
        ends.sort();
        ends
    }
}

/// Says that the file was modified so many seconds after the epoch.
fn touch(path: &Path, at_s: u64) {
    let file = fs::File::options().write(true).open(path).unwrap();
    file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(at_s)).unwrap();
}

#[tokio::test]
async fn files_that_come_change_and_go_are_changes_and_a_restart_loses_none() {
    let mut world = World::new();
    let store = world.store().await;
    world.write("a.csv", "1");
    world.write("deep/er/ü b%41.csv", "2");
    assert_eq!(world.look(&store).await, ["%C3%BC%20b%2541.csv 1", "a.csv 1"]);
    assert_eq!(world.look(&store).await, Vec::<String>::new(), "nothing is new");
    world.write("a.csv", "1, and more");
    assert_eq!(world.look(&store).await, ["a.csv 2"]);
    touch(&world.folder.path().join("a.csv"), 1_000);
    assert_eq!(world.look(&store).await, ["a.csv the same"], "bytes decide, not times");
    assert_eq!(world.look(&store).await, Vec::<String>::new());
    // All of this happens while nobody watches.
    drop(store);
    world.watch = Watch::default();
    world.write("new.csv", "3");
    world.write("a.csv", "changed");
    fs::remove_dir_all(world.folder.path().join("deep")).unwrap();
    let store = world.store().await;
    assert_eq!(world.look(&store).await, ["%C3%BC%20b%2541.csv 2", "a.csv 3", "new.csv 1"]);
    fs::remove_file(world.folder.path().join("new.csv")).unwrap();
    assert_eq!(world.look(&store).await, ["new.csv 2"]);
    assert_eq!(world.look(&store).await, Vec::<String>::new());
    world.write("new.csv", "3");
    assert_eq!(world.look(&store).await, ["new.csv 3"]);
}

#[tokio::test]
async fn a_file_that_is_being_written_waits_and_is_not_taken_for_gone() {
    let mut world = World::new();
    let store = world.store().await;
    world.write("a.csv", "1");
    world.look(&store).await;
    world.write("a.csv", "12");
    // As if it was written at this very moment.
    let modified = fs::metadata(world.folder.path().join("a.csv")).unwrap().modified().unwrap();
    let written_at = Timestamp::from_millis(i64::try_from(modified.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis()).unwrap());
    world.clock.set(written_at.plus_ms(10));
    assert_eq!(world.look(&store).await, Vec::<String>::new());
    world.watch = Watch::default();
    world.clock.set(written_at.plus_ms(20));
    assert_eq!(world.look(&store).await, Vec::<String>::new(), "not even after a restart");
    world.clock.set(written_at.plus_ms(1_100));
    assert_eq!(world.look(&store).await, ["a.csv 2"]);
}

#[tokio::test]
async fn a_folder_that_cannot_be_listed_is_a_state_and_deletes_nothing() {
    let mut world = World::new();
    let store = world.store().await;
    world.write("a.csv", "1");
    world.look(&store).await;
    let away = world.folder.path().with_extension("away");
    fs::rename(world.folder.path(), &away).unwrap();
    let fault = list(world.directory(), later()).await.unwrap_err();
    assert_eq!(fault.code, "directory.unreadable");
    for failing in [Some(&fault), Some(&fault), None, None] {
        world.watch.remember(&store, &world.source, failing, later()).await.unwrap();
    }
    let state = store.poll_state(&world.source.id).await.unwrap().unwrap();
    assert_eq!((state.checks, state.failures, state.failing), (2, 1, None), "only what is new is saved");
    // Nor does a handler take what cannot be seen for gone.
    let uri = file_uri(&format!("{}/a.csv", world.directory())).unwrap();
    let upstream = LocalUpstream::new(ModelUpstream::default());
    let fault = upstream.fetch(&world.source, &uri).await.map(|_| ()).unwrap_err();
    assert_eq!(fault.code, "directory.unreadable");
    fs::rename(&away, world.folder.path()).unwrap();
    assert_eq!(world.look(&store).await, Vec::<String>::new());
    let (key, _) = world.source.entity_at(&uri).unwrap();
    assert_eq!(store.head(&key).await.unwrap().revision(), 1);
}

/// The bytes that a fetch of the file `name` gives, or that it is not there.
async fn fetched(world: &World, name: &str) -> Result<Option<Vec<u8>>, Fault> {
    let upstream = LocalUpstream::new(ModelUpstream::default());
    let uri = file_uri(&format!("{}/{name}", world.directory())).unwrap();
    match upstream.fetch(&world.source, &uri).await? {
        Fetched::Missing { .. } => Ok(None),
        Fetched::Present { mut body, .. } => {
            let mut bytes = Vec::new();
            while let Some(chunk) = body.chunk().await? {
                bytes.extend_from_slice(&chunk);
            }
            Ok(Some(bytes))
        }
    }
}

#[tokio::test]
async fn no_link_leads_out_of_the_folder() {
    let mut world = World::new();
    let store = world.store().await;
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("secret"), "s3cr3t").unwrap();
    world.write("inside", "1");
    std::os::unix::fs::symlink(outside.path().join("secret"), world.folder.path().join("file")).unwrap();
    std::os::unix::fs::symlink(outside.path(), world.folder.path().join("folder")).unwrap();
    std::os::unix::fs::symlink(world.folder.path().join("inside"), world.folder.path().join("within")).unwrap();
    assert_eq!(world.look(&store).await, ["inside 1"]);
    assert_eq!(fetched(&world, "inside").await.unwrap().as_deref(), Some(b"1".as_slice()));
    for link in ["file", "folder/secret", "within", "folder"] {
        assert_eq!(fetched(&world, link).await.unwrap(), None, "{link}");
    }
    let upstream = LocalUpstream::new(ModelUpstream::default());
    let direct = file_uri(outside.path().join("secret").to_str().unwrap()).unwrap();
    let fault = upstream.fetch(&world.source, &direct).await.map(|_| ()).unwrap_err();
    assert_eq!(fault.code, "directory.outside");
    // A folder that is itself a link is not watched.
    let link = world.data.path().join("link");
    std::os::unix::fs::symlink(world.folder.path(), &link).unwrap();
    assert_eq!(list(link.to_str().unwrap(), later()).await.unwrap_err().code, "directory.none");
}

#[tokio::test]
async fn half_of_one_version_and_half_of_another_are_no_version() {
    let world = World::new();
    let long = "x".repeat(3 * 512 * 1024);
    world.write("a", &long);
    let upstream = LocalUpstream::new(ModelUpstream::default());
    let uri = file_uri(&format!("{}/a", world.directory())).unwrap();
    for change in ["appended", "shortened", "rewritten"] {
        world.write("a", &long);
        touch(&world.folder.path().join("a"), 1_000);
        let Fetched::Present { mut body, .. } = upstream.fetch(&world.source, &uri).await.unwrap() else { panic!("it is there") };
        body.chunk().await.unwrap().unwrap();
        match change {
            "appended" => world.write("a", &format!("{long}y")),
            "shortened" => world.write("a", "x"),
            _ => world.write("a", &long.replace('x', "y")),
        }
        let mut end = Ok(Some(bytes::Bytes::new()));
        while let Ok(Some(_)) = end {
            end = body.chunk().await;
        }
        assert_eq!(end.unwrap_err().code, "directory.changing", "{change}");
        assert!(body.chunk().await.is_err(), "{change}: a fault stays a fault");
    }
    let mut small = world.source.clone();
    small.limits.body_bytes_max = 10;
    assert_eq!(upstream.fetch(&small, &uri).await.map(|_| ()).unwrap_err().code, "directory.file_too_large");
}
