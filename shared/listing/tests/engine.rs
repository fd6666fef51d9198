//! Sorting and comparing, beside the plainest way to do it; with so little memory that everything is spilled.
#![expect(clippy::unwrap_used, reason = "shared by the tests below")]

use std::collections::BTreeMap;
use std::io::Write as _;

use tidemark_domain::contract::{ListingBasis, Manifest, ManifestEntry};
use tidemark_domain::listing::{Entry, ListingFormat, ListingPlan};
use tidemark_domain::{Sha256Digest, Timestamp};
use tidemark_listing::{Counts, Difference, Lines, Sorted, Sorter, diff, read_file, write_manifest};

/// The least memory that a sorter takes: some hundred entries.
const TIGHT: usize = 0;
const PLENTY: usize = 64 << 20;

/// Numbers that look like chance and are the same each time.
fn draws(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut state = seed;
    move |below| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    }
}

/// URIs that share long beginnings, are prefixes of each other, and have bytes above ASCII.
fn uri(n: u64) -> String {
    match n % 4 {
        0 => format!("https://example.org/data/{n}"),
        1 => format!("https://example.org/data/{}/x", n / 7),
        2 => format!("https://example.org/d\u{e9}/{}", n / 3),
        _ => format!("s3://bucket/{n:020}"),
    }
}

fn entry(n: u64, version: u64) -> Entry<'static> {
    Entry {
        uri: uri(n).into(),
        version: (version != 1).then(|| format!("v{version}").into()),
        checksum_sha256: (version % 3 == 2).then(|| Sha256Digest::of(&version.to_le_bytes())),
        size_bytes: n.is_multiple_of(2).then_some(version),
    }
}

fn sorted(entries: &[Entry<'static>], memory: usize) -> Sorted {
    let folder = std::env::temp_dir();
    let mut sorter = Sorter::new(&folder, memory);
    entries.iter().for_each(|entry| sorter.push(entry).unwrap());
    sorter.finish().unwrap()
}

fn drained(mut sorted: Sorted) -> (Vec<Entry<'static>>, Sorted) {
    let mut entries = Vec::new();
    while sorted.advance().unwrap() {
        entries.push(sorted.entry().unwrap().unwrap().into_owned());
    }
    assert!(!sorted.advance().unwrap() && sorted.entry().unwrap().is_none(), "the end stays the end");
    (entries, sorted)
}

/// Each URI once, the last that came.
fn plainly(entries: &[Entry<'static>]) -> BTreeMap<Vec<u8>, Entry<'static>> {
    entries.iter().map(|entry| (entry.uri.as_bytes().to_vec(), entry.clone())).collect()
}

#[test]
fn entries_come_out_in_their_order_each_uri_once_with_or_without_room() {
    for seed in 0..6 {
        let mut draw = draws(seed);
        // More than 64 runs in the tightest case, so that runs are merged into runs.
        let count = [0, 1, 2, 500, 20_000, 60_000][seed as usize];
        let entries: Vec<Entry<'static>> = (0..count).map(|_| entry(draw(count / 2 + 1), draw(5))).collect();
        let expected: Vec<Entry<'static>> = plainly(&entries).into_values().collect();
        let ((tight, of_tight), (plenty, of_plenty)) = (drained(sorted(&entries, TIGHT)), drained(sorted(&entries, PLENTY)));
        assert!(tight == expected, "seed {seed}: spilled");
        assert!(plenty == expected, "seed {seed}: in memory");
        let repeated = count - expected.len() as u64;
        for sorted in [&of_tight, &of_plenty] {
            assert_eq!(sorted.duplicates + sorted.conflicts, repeated, "seed {seed}");
            assert_eq!(sorted.conflict.is_some(), sorted.conflicts > 0);
        }
        assert_eq!(of_tight.conflicts, of_plenty.conflicts, "seed {seed}");
    }
}

#[test]
fn differences_are_those_of_the_plainest_comparison_whatever_the_order() {
    for seed in 0..8 {
        let mut draw = draws(seed);
        let mut side = |missing_once_in: u64| -> Vec<Entry<'static>> {
            let mut kept: Vec<Entry<'static>> = (0..5_000).filter(|_| draw(missing_once_in) != 0).map(|n| entry(n, 0)).collect();
            kept.iter_mut().for_each(|one| {
                if draw(50) == 0 {
                    one.size_bytes = Some(draw(3) + 1)
                }
            });
            for n in (1..kept.len()).rev() {
                kept.swap(n, draw(n as u64 + 1) as usize);
            }
            kept
        };
        let (old, new) = (side(40), side(30));
        let (before, after) = (plainly(&old), plainly(&new));
        let mut expected = Vec::new();
        for uri in before.keys().chain(after.keys()).collect::<std::collections::BTreeSet<_>>() {
            match (before.get(uri), after.get(uri)) {
                (None, Some(after)) => expected.push(Difference::Added(after.clone())),
                (Some(before), None) => expected.push(Difference::Removed(before.clone())),
                (Some(before), Some(after)) if before != after => expected.push(Difference::Changed(before.clone(), after.clone())),
                _ => {}
            }
        }
        for (memory_old, memory_new) in [(TIGHT, TIGHT), (PLENTY, PLENTY), (TIGHT, PLENTY)] {
            let mut found = Vec::new();
            let counts = diff(&mut sorted(&old, memory_old), &mut sorted(&new, memory_new), |difference| {
                found.push(match difference {
                    Difference::Added(entry) => Difference::Added(entry.into_owned()),
                    Difference::Removed(entry) => Difference::Removed(entry.into_owned()),
                    Difference::Changed(before, after) => Difference::Changed(before.into_owned(), after.into_owned()),
                });
                Ok(())
            });
            assert!(found == expected, "seed {seed}");
            let Counts { old, new, added, removed, changed } = counts.unwrap();
            assert_eq!((old, new), (before.len() as u64, after.len() as u64));
            assert_eq!(added + removed + changed, expected.len() as u64);
        }
    }
}

#[test]
fn a_manifest_written_entry_by_entry_is_the_canonical_one() {
    let now: Timestamp = "2026-11-18T00:00:00Z".parse().unwrap();
    for count in [0, 1, 300] {
        let entries: Vec<Entry<'static>> = (0..count).map(|n| entry(count - n, n % 4)).collect();
        let whole: Vec<ManifestEntry> = entries.iter().map(|entry| ManifestEntry::from(entry.clone())).collect();
        let expected = Manifest::of("man_x".into(), now, ListingBasis::ApiList, whole).unwrap();
        let mut text = Vec::new();
        let (checksum, _) = write_manifest(&mut sorted(&entries, TIGHT), "man_x", now, ListingBasis::ApiList, &mut text).unwrap();
        assert_eq!(checksum.prefixed(), expected.manifest_checksum_sha256);
        assert_eq!(text, tidemark_domain::canon::to_canonical(&expected).unwrap());
    }
}

#[test]
fn lines_are_read_back_from_a_file_as_they_were_written() {
    let entries: Vec<Entry<'static>> = (0..2_000).map(|n| entry(n, n % 5)).collect();
    let (expected, _) = drained(sorted(&entries, PLENTY));
    let mut lines = Lines::default();
    expected.iter().for_each(|entry| lines.push(entry));
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(&lines.bytes).unwrap();
    assert_eq!(lines.finish().1, file.as_file().metadata().unwrap().len());
    let mut sorter = Sorter::new(&std::env::temp_dir(), TIGHT);
    let read = read_file(file.path(), &ListingPlan::of(ListingFormat::JsonLines), &mut sorter).unwrap();
    assert_eq!(read.incomplete, None);
    assert!(drained(sorter.finish().unwrap()).0 == expected);
}

#[test]
fn a_folder_that_cannot_be_spilled_to_is_an_error_and_not_a_shorter_listing() {
    let mut sorter = Sorter::new(std::path::Path::new("/nowhere/at/all"), TIGHT);
    let fault = (0..100_000).find_map(|n| sorter.push(&entry(n, 0)).err()).unwrap();
    assert_eq!(fault.code, "listing.io");
}
