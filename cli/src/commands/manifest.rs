//! `manifest build` and `manifest diff`: listings as files, of any length and in any order. They need no store.

use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::{Value, json};
use tidemark_domain::contract::ManifestEntry;
use tidemark_domain::listing::{Entry, ListingFormat, ListingPlan};
use tidemark_domain::{Fault, Source};
use tidemark_listing::{Counts, Difference, Sorted, Sorter, diff as compare, read_file, write_manifest};
use tidemark_pipeline::detect::listing::{read_listing, sorter};
use tidemark_pipeline::ports::Clock as _;
use tidemark_upstream::{HttpSettings, HttpUpstream};

use crate::args::{Global, ManifestBuildArgs, ManifestDiffArgs};
use crate::node::SystemClock;
use crate::output;

/// Memory for each of the two sides of a comparison; what does not fit is spilled.
const SIDE_BYTES: usize = 176 << 20;

/// How a comparison that cannot be made ends, as that of `diff` does.
pub(crate) const TROUBLE: u8 = 2;

pub(crate) async fn build(args: &ManifestBuildArgs, global: &Global) -> Result<ExitCode, Fault> {
    let clock = SystemClock;
    let plan = plan(args.format, &args.from, args.base.as_deref())?;
    let folder = args.scratch.clone().unwrap_or_else(|| folder_of(&args.output));
    let (mut sorted, checksum, incomplete) = if args.from.contains("://") {
        let settings = HttpSettings { contact: global.contact.clone(), ..HttpSettings::default() };
        let upstream = HttpUpstream::new(settings, clock)?;
        let source = ad_hoc(args)?;
        let listing = read_listing(&upstream, &source, &plan, |uri| Some(uri.to_owned()), sorter(&folder)).await?;
        (listing.sorted, listing.checksum, listing.incomplete)
    } else {
        let mut sorter = Sorter::new(&folder, SIDE_BYTES);
        let read = read_file(Path::new(&args.from), &plan, &mut sorter)?;
        (sorter.finish()?, read.checksum, read.incomplete)
    };
    if let Some(why) = incomplete {
        return Err(Fault::retryable("manifest.incomplete", format!("{} is not all that there is: {why}", args.from))
            .remedy("nothing was written; look again when it stands still"));
    }
    // Beside its name until it is whole.
    let unwritable = |error: &std::io::Error| {
        Fault::permanent("manifest.output", format!("cannot write {}: {error}", args.output.display()))
            .remedy("check the path and the disk")
    };
    let mut partial = args.output.clone().into_os_string();
    partial.push(format!(".{}.partial", std::process::id()));
    let partial = PathBuf::from(partial);
    let write = |sorted: &mut Sorted| {
        let mut out = BufWriter::with_capacity(1 << 20, File::create(&partial).map_err(|error| unwritable(&error))?);
        let id = format!("man_{}_{}", clock.now().date(), args.id.as_deref().unwrap_or("listing"));
        let basis = checksum.map_or(plan.format.basis(), |(_, basis)| basis);
        let (found, entries) = write_manifest(sorted, &id, clock.now(), basis, &mut out)?;
        if sorted.conflicts > 0 {
            return Err(conflict(&args.from, sorted));
        }
        if checksum.is_some_and(|(expected, _)| expected != found) {
            return Err(Fault::permanent("manifest.checksum", format!("{} does not have the checksum that it names", args.from))
                .remedy("it was altered, or cut off: get it again"));
        }
        std::fs::rename(&partial, &args.output).map_err(|error| unwritable(&error))?;
        Ok((found, entries))
    };
    let written = write(&mut sorted);
    if written.is_err() {
        let _ = std::fs::remove_file(&partial);
    }
    let (checksum, entries) = written?;
    if global.json {
        let told = json!({ "entries": entries, "duplicates": sorted.duplicates, "manifest_checksum_sha256": checksum.prefixed(), "output": args.output });
        output::json(&told)?;
    } else {
        let again = if sorted.duplicates == 0 { String::new() } else { format!(", {} listed more than once", sorted.duplicates) };
        let entries = output::count(entries, "entry", "entries");
        output::line(&format!("{entries}{again}  {}  {}", checksum.prefixed(), args.output.display()));
    }
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn diff(args: &ManifestDiffArgs, json: bool) -> Result<ExitCode, Fault> {
    let folder = args.scratch.clone().unwrap_or_else(|| folder_of(&args.new));
    let side = |path: &Path| {
        let plan = plan(args.format, &path.to_string_lossy(), None)?;
        let mut sorter = Sorter::new(&folder, SIDE_BYTES);
        let read = read_file(path, &plan, &mut sorter)?;
        match read.incomplete {
            None => sorter.finish(),
            Some(why) => Err(Fault::permanent("manifest.incomplete", format!("{} is not all that there is: {why}", path.display()))
                .remedy("compare complete listings: what is missing in half of one says nothing")),
        }
    };
    // One on each processor.
    let (old, new) = std::thread::scope(|scope| {
        let old = scope.spawn(|| side(&args.old));
        let new = side(&args.new);
        (old.join().unwrap_or_else(|_| Err(Fault::permanent("manifest.thread", "reading the old listing broke off"))), new)
    });
    let (mut old, mut new) = (old?, new?);
    let mut told =
        Told { json, limit: if args.limit == 0 { u64::MAX } else { args.limit }, listed: 0, out: BufWriter::new(std::io::stdout()) };
    told.begin();
    let counts = compare(&mut old, &mut new, |difference| told.tell(&difference))?;
    for (path, sorted) in [(&args.old, &old), (&args.new, &new)] {
        if sorted.conflicts > 0 {
            return Err(conflict(&path.to_string_lossy(), sorted));
        }
    }
    told.end(&counts)?;
    let same = counts.added + counts.removed + counts.changed == 0;
    Ok(if same { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// Differences on their way out, each as it is found.
struct Told<W: std::io::Write> {
    json: bool,
    limit: u64,
    listed: u64,
    out: W,
}

impl<W: std::io::Write> Told<W> {
    /// A reader that has gone away (`| head`) is not an error.
    fn write(&mut self, text: &str) {
        let _ = self.out.write_all(text.as_bytes());
    }

    fn begin(&mut self) {
        if self.json {
            self.write("{\"differences\":[");
        }
    }

    fn tell(&mut self, difference: &Difference<'_>) -> Result<(), Fault> {
        if self.listed >= self.limit {
            return Ok(());
        }
        self.listed += 1;
        let (sign, word, before, after) = match difference {
            Difference::Added(after) => ('+', "added", None, Some(after)),
            Difference::Removed(before) => ('-', "removed", Some(before), None),
            Difference::Changed(before, after) => ('~', "changed", Some(before), Some(after)),
        };
        let uri = after.or(before).map_or("", |entry| &*entry.uri);
        let text = if self.json {
            let owned = |entry: Option<&Entry<'_>>| entry.map(|entry| ManifestEntry::from(entry.clone()));
            let comma = if self.listed > 1 { "," } else { "" };
            format!("{comma}\n{}", json!({ "difference": word, "uri": uri, "before": owned(before), "after": owned(after) }))
        } else {
            format!("{sign} {uri}\n")
        };
        self.write(&text);
        Ok(())
    }

    fn end(&mut self, counts: &Counts) -> Result<(), Fault> {
        let Counts { old, new, added, removed, changed } = *counts;
        let omitted = (added + removed + changed).saturating_sub(self.listed);
        let text = if self.json {
            let rest: Value = json!({ "old": old, "new": new, "added": added, "removed": removed, "changed": changed, "omitted": omitted });
            let rest = rest.to_string();
            format!("\n],{}\n", rest.trim_start_matches('{'))
        } else {
            let more = if omitted == 0 { String::new() } else { format!("… and {omitted} more (--limit 0 lists all)\n") };
            format!("{more}{added} added, {removed} removed, {changed} changed; {old} before, {new} now\n")
        };
        self.write(&text);
        let _ = self.out.flush();
        Ok(())
    }
}

fn plan(format: Option<ListingFormat>, from: &str, base: Option<&str>) -> Result<ListingPlan, Fault> {
    let extension =
        Path::new(from.split(['?', '#']).next().unwrap_or(from)).extension().map(|text| text.to_string_lossy().to_ascii_lowercase());
    let format = format.or(match extension.as_deref() {
        Some("jsonl" | "ndjson") => Some(ListingFormat::JsonLines),
        Some("csv") => Some(ListingFormat::Csv),
        Some("json") => Some(ListingFormat::Manifest),
        Some("html") => Some(ListingFormat::Html),
        _ => None,
    });
    let format = format.ok_or_else(|| {
        let words = ListingFormat::ALL.map(ListingFormat::as_str).join(", ");
        Fault::rejected("manifest.format", format!("the name of {from} does not say how it is written"))
            .remedy(format!("add --format: {words}"))
    })?;
    let plan = ListingPlan {
        base: base.map(str::to_owned),
        entries: (format == ListingFormat::Json).then(String::new),
        ..ListingPlan::of(format)
    };
    match plan.wrongs().first() {
        None => Ok(plan),
        Some(wrong) => Err(Fault::rejected("manifest.plan", wrong.clone()).remedy("add --base URL, below which the listed paths are")),
    }
}

/// A source for one look.
fn ad_hoc(args: &ManifestBuildArgs) -> Result<Source, Fault> {
    let id = "manifest".parse().map_err(|why: String| Fault::rejected("manifest.source", why))?;
    let source = Source { allow_http: args.allow_http, allow_private: args.allow_private, ..Source::watching(id, &args.from, 3600) };
    source.checked()
}

/// Where there is likely to be room for what is spilled: beside what is read or written.
fn folder_of(path: &Path) -> PathBuf {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new(".")).to_owned()
}

fn conflict(of: &str, sorted: &Sorted) -> Fault {
    let uri = sorted.conflict.as_deref().unwrap_or_default();
    Fault::permanent("manifest.conflict", format!("{of} lists {uri} more than once, and not as the same ({} such)", sorted.conflicts))
        .remedy("nobody can say which of them stands: correct the listing")
}
