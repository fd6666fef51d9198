//! The lineage of a run: which upstream thing, seen by whom, became which bytes, under which program
//! and policy.
//!
//! One document, two readings: PROV-JSON by its layout, and PROV-O by its inline JSON-LD context. No
//! remote context is named, so it means the same without a network. It names things by URN and by store
//! key, never by where a deployment serves them: the same run writes the same bytes everywhere (I8).

use serde_json::{Map, Value, json};

use super::{Document, RunFacts, artifact_key, escaped};
use crate::canon::to_canonical;
use crate::digest::Sha256Digest;
use crate::fault::Fault;
use crate::head::Artifact;

/// How names inside the document become IRIs.
const CONTEXT: &str = include_str!("prov_context.json");
/// Who acts.
const AGENT: &str = "urn:kfm:agent:service:change-handler";

/// The lineage as canonical JSON-LD. `delta` is the unit of undo that the run wrote.
pub(super) fn write(facts: &RunFacts<'_>, delta: &Document) -> Result<Vec<u8>, Fault> {
    let context: Value = serde_json::from_str(CONTEXT)
        .map_err(|error| Fault::permanent("prov.context", format!("the built-in PROV context is not JSON: {error}")))?;
    let run = facts.step.run_id();
    let mut lineage = Lineage::of(facts);
    lineage.add_source_and_plan();
    lineage.add_delta(delta);
    match (facts.before, facts.after) {
        (before, Some(after)) => lineage.add_new_bytes(before, after),
        (Some(before), None) => lineage.add_deletion(before),
        (None, None) => {}
    }
    let mut document = lineage.sections;
    document.insert("@context".into(), context);
    document.insert("@id".into(), json!(format!("urn:kfm:prov:run:{run}")));
    document.insert("@type".into(), json!(["prov:Entity", "prov:Bundle"]));
    document.insert("prov:generatedAtTime".into(), json!(facts.frozen.evaluated_at));
    document.insert("dcterms:conformsTo".into(), json!("http://www.w3.org/TR/prov-o/"));
    document.insert(
        "prefix".into(),
        json!({
            "prov": "http://www.w3.org/ns/prov#",
            "xsd": "http://www.w3.org/2001/XMLSchema#",
            "rdfs": "http://www.w3.org/2000/01/rdf-schema#",
            "kfm": "https://kfm.example/ns#",
            "urn": "urn:",
        }),
    );
    to_canonical(&document)
}

/// The sections of a PROV-JSON document while they are filled.
struct Lineage<'a> {
    facts: &'a RunFacts<'a>,
    activity: String,
    source: String,
    sections: Map<String, Value>,
}

impl<'a> Lineage<'a> {
    /// The activity and its agent, which every run has.
    fn of(facts: &'a RunFacts<'a>) -> Self {
        let run = facts.step.run_id();
        let mut lineage =
            Self { facts, activity: format!("urn:kfm:activity:change-detect:run:{run}"), source: source_urn(facts), sections: Map::new() };
        let (frozen, event) = (facts.frozen, &facts.frozen.event);
        let mut activity = labelled(json!("prov:Activity"), "change-detection-handler");
        activity["kfm:detector"] = json!(event.detector);
        activity["kfm:change_event_id"] = json!(event.change_event_id);
        activity["kfm:idempotency_key"] = json!(facts.step.idempotency_key());
        activity["kfm:change_type"] = json!(facts.change_type());
        activity["kfm:revision"] = json!(facts.step.base_revision + 1);
        activity["kfm:handler_version"] = json!(frozen.software_version);
        activity["kfm:policy_set"] = json!(frozen.policy_set);
        // Two machines' clocks may disagree; an activity that ends before it starts is no lineage.
        activity["prov:startedAtTime"] = json!(event.received_at.min(frozen.evaluated_at));
        activity["prov:endedAtTime"] = json!(frozen.evaluated_at);
        activity["prov:used"] = json!(lineage.source);
        activity["prov:wasAssociatedWith"] = json!(AGENT);
        let id = lineage.activity.clone();
        lineage.add("activity", &id, activity);
        lineage.add("agent", AGENT, labelled(json!(["prov:Agent", "prov:SoftwareAgent"]), "pipeline identity"));
        lineage
    }

    /// What was looked at, and by which rules.
    fn add_source_and_plan(&mut self) {
        let (frozen, event) = (self.facts.frozen, &self.facts.frozen.event);
        let mut source = labelled(json!("prov:Entity"), "source_uri");
        source["kfm:uri"] = json!(event.source_uri);
        source["kfm:detected_at"] = json!(event.detected_at);
        if let Some(hint) = self.facts.version_hint() {
            source["kfm:version_hint"] = json!(hint);
        }
        let plan_id = format!("urn:kfm:entity:plan:change-handler:{}", escaped(&frozen.software_version));
        let mut plan = labelled(json!(["prov:Entity", "prov:Plan"]), "change-handler");
        plan["kfm:version"] = json!(frozen.software_version);
        let (source_id, activity) = (self.source.clone(), self.activity.clone());
        self.add("entity", &source_id, source);
        self.add("entity", &plan_id, plan);
        self.add(
            "used",
            "_:u1",
            json!({ "@type": "prov:Usage", "prov:activity": activity, "prov:entity": source_id, "prov:atTime": frozen.evaluated_at }),
        );
        self.add(
            "wasAssociatedWith",
            "_:waw1",
            json!({ "@type": "prov:Association", "prov:activity": activity, "prov:agent": AGENT, "prov:hadPlan": plan_id }),
        );
    }

    /// The delta: what every run generates, a deletion too.
    fn add_delta(&mut self, delta: &Document) {
        let id = format!("urn:kfm:entity:delta:{}", self.facts.step.run_id());
        let mut entity = labelled(json!("prov:Entity"), "delta_manifest");
        entity["kfm:key"] = json!(delta.key);
        entity["kfm:checksum_sha256"] = json!(Sha256Digest::of(&delta.bytes));
        entity["prov:wasGeneratedBy"] = json!(self.activity);
        self.add("entity", &id, entity);
        self.add_generation("_:wgb1", &id);
    }

    /// New bytes: derived from the source, and a revision of the bytes before.
    fn add_new_bytes(&mut self, before: Option<&Artifact>, after: &Artifact) {
        let id = artifact_urn(after);
        let mut entity = artifact("staged_artifact", after);
        entity["prov:generatedAtTime"] = json!(self.facts.frozen.evaluated_at);
        entity["prov:wasGeneratedBy"] = json!(self.activity);
        entity["prov:wasDerivedFrom"] = json!(self.source);
        entity["prov:hadPrimarySource"] = json!(self.source);
        entity["prov:wasAttributedTo"] = json!(AGENT);
        if let Some(before) = before {
            let before_id = artifact_urn(before);
            entity["prov:wasRevisionOf"] = json!(before_id);
            self.add("entity", &before_id, artifact("previous_artifact", before));
            self.add_derivation("_:wdf2", json!(["prov:Derivation", "prov:Revision"]), &id, &before_id);
        }
        self.add("entity", &id, entity);
        self.add_generation("_:wgb2", &id);
        let source = self.source.clone();
        self.add_derivation("_:wdf1", json!("prov:Derivation"), &id, &source);
        self.add("wasAttributedTo", "_:wat1", json!({ "@type": "prov:Attribution", "prov:entity": id, "prov:agent": AGENT }));
    }

    /// A deletion ends what was there before.
    fn add_deletion(&mut self, before: &Artifact) {
        let id = artifact_urn(before);
        let at = self.facts.frozen.evaluated_at;
        let mut entity = artifact("previous_artifact", before);
        entity["prov:invalidatedAtTime"] = json!(at);
        entity["prov:wasInvalidatedBy"] = json!(self.activity);
        self.add("entity", &id, entity);
        let relation = json!({ "@type": "prov:Invalidation", "prov:entity": id, "prov:activity": self.activity, "prov:atTime": at });
        self.add("wasInvalidatedBy", "_:wib1", relation);
    }

    fn add_generation(&mut self, id: &str, entity: &str) {
        let at = self.facts.frozen.evaluated_at;
        let relation = json!({ "@type": "prov:Generation", "prov:entity": entity, "prov:activity": self.activity, "prov:atTime": at });
        self.add("wasGeneratedBy", id, relation);
    }

    /// PROV-JSON reads `usedEntity` and PROV-O reads `entity`: both are written.
    fn add_derivation(&mut self, id: &str, types: Value, generated: &str, used: &str) {
        let relation = json!({ "@type": types, "prov:generatedEntity": generated, "prov:usedEntity": used, "prov:entity": used });
        self.add("wasDerivedFrom", id, relation);
    }

    fn add(&mut self, section: &str, id: &str, record: Value) {
        let records = self.sections.entry(section).or_insert_with(|| json!({}));
        records[id] = record;
    }
}

/// A record with its label under both names: PROV-JSON reads the first, PROV-O the second.
fn labelled(types: Value, label: &str) -> Value {
    json!({ "@type": types, "prov:label": label, "rdfs:label": label })
}

fn artifact(label: &str, artifact: &Artifact) -> Value {
    let mut entity = labelled(json!("prov:Entity"), label);
    entity["kfm:checksum_sha256"] = json!(artifact.sha256);
    entity["kfm:size_bytes"] = json!(artifact.size_bytes);
    entity["kfm:key"] = json!(artifact_key(&artifact.sha256));
    entity
}

fn artifact_urn(artifact: &Artifact) -> String {
    format!("urn:kfm:entity:artifact:{}", artifact.sha256.prefixed())
}

/// The upstream thing as it was seen: under upstream's own version, or else as of the sighting.
fn source_urn(facts: &RunFacts<'_>) -> String {
    let key = &facts.step.key;
    let seen_as = match facts.version_hint() {
        Some(hint) => format!("version:{}", escaped(hint)),
        None => format!("event:{}", escaped(facts.frozen.event.change_event_id.as_str())),
    };
    format!("urn:kfm:entity:source:{}:{}:{seen_as}", key.source, escaped(key.entity.as_str()))
}
