//! A watched folder: what lies in it is compared with what was last decided (I11), so that nothing that happened while nobody
//! watched is lost. Times and sizes are hints; the bytes decide (I3).

use std::collections::BTreeMap;

use tidemark_domain::contract::Detector;
use tidemark_domain::directory::file_uri;
use tidemark_domain::poll::PollState;
use tidemark_domain::{Candidate, EntityKey, Fault, HintKey, Source, Timestamp, Validators};

use crate::ports::{Intake, Ledger, Sources};
use crate::submit::submit;

/// How long what was compared is not compared again as long as it looks the same: what failed in handling is found then.
const KEEP_MS: i64 = 3600 * 1000;
/// Entities asked for at once.
const PAGE: usize = 1000;

/// All files below a folder, by URI, with what is seen of each from outside; nothing, while somebody may be writing it.
/// Complete, or it would not be one.
pub type Listing = BTreeMap<String, Option<Validators>>;

/// What one watcher knows of one folder. Nothing of it is needed after a restart.
#[derive(Debug, Default)]
pub struct Watch {
    compared: BTreeMap<String, Validators>,
    /// When everything was compared.
    since: Option<Timestamp>,
    /// Whether the last listing failed; unknown after a start.
    is_failing: Option<bool>,
}

impl Watch {
    /// Submits what `listing` has, or no longer has, and was not decided yet. How many there were.
    pub async fn compare(
        &mut self,
        source: &Source,
        ledger: &impl Ledger,
        intake: &impl Intake,
        listing: Listing,
        now: Timestamp,
    ) -> Result<usize, Fault> {
        let mut submitted = 0;
        let is_whole = self.since.is_none_or(|since| now >= since.plus_ms(KEEP_MS));
        if is_whole {
            self.compared.clear();
            for uri in decided(source, ledger).await? {
                submitted += usize::from(!listing.contains_key(&uri) && offer(source, ledger, intake, &uri, None, now).await?);
            }
        }
        let gone: Vec<String> = self.compared.keys().filter(|uri| !listing.contains_key(*uri)).cloned().collect();
        for uri in gone {
            submitted += usize::from(offer(source, ledger, intake, &uri, None, now).await?);
            self.compared.remove(&uri);
        }
        let settled = listing.into_iter().filter_map(|(uri, seen)| Some((uri, seen?)));
        for (uri, seen) in settled {
            if self.compared.get(&uri) != Some(&seen) {
                submitted += usize::from(offer(source, ledger, intake, &uri, Some(&seen), now).await?);
                // Last: if a submission fails, all that is not remembered here is compared again (I2).
                self.compared.insert(uri, seen);
            }
        }
        if is_whole {
            self.since = Some(now);
        }
        Ok(submitted)
    }

    /// Saves that the folder cannot be listed, or can again (I11). Says nothing as long as nothing is new about that.
    pub async fn remember(
        &mut self,
        sources: &impl Sources,
        source: &Source,
        failing: Option<&Fault>,
        now: Timestamp,
    ) -> Result<(), Fault> {
        if self.is_failing == Some(failing.is_some()) {
            return Ok(());
        }
        let state = sources.poll_state(&source.id).await?.unwrap_or_default();
        let failures = state.failures + u64::from(failing.is_some());
        let looked = PollState { failing: failing.cloned(), last_checked: Some(now), checks: state.checks + 1, failures, ..state };
        sources.save_poll(&source.id, &looked).await?;
        self.is_failing = Some(failing.is_some());
        Ok(())
    }
}

/// Everything below the folder that has a head.
async fn decided(source: &Source, ledger: &impl Ledger) -> Result<Vec<String>, Fault> {
    // The folder's own URI comes before those of all files in it, and is none of them.
    let Some(folder) = source.directory.as_deref().and_then(file_uri) else { return Ok(Vec::new()) };
    let prefix = format!("{folder}/");
    let entity = folder.parse().map_err(|reason: String| Fault::permanent("directory.uri", reason))?;
    let mut after = EntityKey { source: source.id.clone(), entity };
    let mut uris = Vec::new();
    loop {
        let page = ledger.entities(Some(&after), PAGE).await?;
        let is_last = page.len() < PAGE;
        for key in page {
            if key.source != source.id || (key.entity.as_str() > prefix.as_str() && !key.entity.as_str().starts_with(&prefix)) {
                return Ok(uris);
            }
            if key.entity.as_str().starts_with(&prefix) {
                uris.push(key.entity.as_str().to_owned());
            }
            after = key;
        }
        if is_last {
            return Ok(uris);
        }
    }
}

/// Submits one file as it is `seen`, or that it is gone, unless that was decided. Was there anything to submit?
async fn offer(
    source: &Source,
    ledger: &impl Ledger,
    intake: &impl Intake,
    uri: &str,
    seen: Option<&Validators>,
    now: Timestamp,
) -> Result<bool, Fault> {
    let (key, uri) = source.entity_at(uri)?;
    let view = ledger.head(&key).await?;
    let present = view.head.as_ref().is_some_and(|head| head.artifact.is_some());
    let is_decided = match seen {
        Some(seen) => present && view.decided == *seen,
        None => !present,
    };
    if is_decided {
        return Ok(false);
    }
    let candidate = Candidate {
        hint: Some(HintKey::poll(&key, &view, seen.unwrap_or(&Validators::default()))),
        key,
        uri,
        detector: Detector::Event,
        deletion: seen.is_none(),
        version_hint: seen.and_then(Validators::hint).map(str::to_owned),
        order: None,
        detected_at: now,
        received_at: now,
        arrival: String::new(),
        notes: None,
    };
    submit(intake, &candidate, now).await?;
    Ok(true)
}
