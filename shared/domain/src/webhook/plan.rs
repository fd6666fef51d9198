//! How a provider may call us, as the sources file says it, checked when the source is registered.

use schemars::{JsonSchema, Schema};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::mapping::{PayloadMap, is_pointer};
use super::presets::layout;
use super::pubsub::GooglePubsubScheme;
use super::sns::AwsSnsScheme;
use crate::source::LIST_ITEMS_MAX;

/// How a secret may be referred to.
const SECRET_SCHEMES: [&str; 3] = ["env:", "file:", "secretsmanager:"];
/// Longest origin of a sender: the longest name that DNS has.
const ORIGIN_BYTES_MAX: usize = 253;

/// How a provider may call us.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "WrittenPlan")]
pub struct WebhookPlan {
    /// How it signs.
    #[serde(flatten)]
    pub scheme: WebhookScheme,
    /// Where the secrets are: `env:NAME`, `file:PATH` or, on a stack, `secretsmanager:NAME`. All of them are valid, for rotation.
    /// Schemes whose provider signs with a key pair of its own have none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<String>,
    /// JSON pointer to the URI that changed; without a hit, `url` is looked at.
    pub uri_pointer: String,
    /// Where else the payload says what changed.
    #[serde(skip_serializing_if = "PayloadMap::is_empty")]
    pub payload: PayloadMap,
    /// How far the time of signing may be off.
    pub tolerance_s: u64,
    /// The longest time in which the provider calls at least once. When it does not, `url` is polled until it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expect_every_s: Option<u64>,
}

/// A plan as it is written: what is left out depends on the scheme.
#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "WebhookPlan", transform = alone)]
struct WrittenPlan {
    /// How it signs, and what only that scheme takes.
    #[serde(flatten)]
    #[schemars(with = "WebhookScheme")]
    scheme: Map<String, Value>,
    /// Where the secrets are: `env:NAME`, `file:PATH` or, on a stack, `secretsmanager:NAME`. All of them are valid, for rotation.
    /// Schemes whose provider signs with a key pair of its own have none.
    #[serde(default)]
    #[schemars(with = "Vec<String>")]
    secrets: Option<Vec<String>>,
    /// JSON pointer to the URI that changed; where the scheme's own events have it, if left out. Without a hit, `url` is looked at.
    #[serde(default)]
    uri_pointer: Option<String>,
    /// Where else the payload says what changed.
    #[serde(default)]
    payload: PayloadMap,
    /// How far the time of signing may be off: 300, if left out. For `aws-sns` 3900, since a message that is sent again keeps
    /// its time, for an hour.
    #[serde(default)]
    tolerance_s: Option<u64>,
    /// The longest time in which the provider calls at least once. When it does not, `url` is polled until it does.
    #[serde(default)]
    expect_every_s: Option<u64>,
}

impl TryFrom<WrittenPlan> for WebhookPlan {
    type Error = String;

    fn try_from(written: WrittenPlan) -> Result<Self, String> {
        let WrittenPlan { scheme, secrets, uri_pointer, payload, tolerance_s, expect_every_s } = written;
        let own = scheme.keys().find(|name| *name != "scheme").cloned();
        let scheme = WebhookScheme::deserialize(Value::Object(scheme)).map_err(|error| error.to_string())?;
        // Serde itself refuses what is misspelt only where a scheme takes anything.
        if let Some(own) = own.filter(|_| !scheme.takes_settings()) {
            return Err(format!("there is no field `{own}` in a `webhook` of this scheme"));
        }
        let secrets = match secrets {
            Some(secrets) => secrets,
            None if scheme.is_published() => Vec::new(),
            // After what is misspelt: that may be the reason.
            None => return Err("the field `secrets` is missing".into()),
        };
        let plan = Self::new(scheme, secrets);
        Ok(Self {
            uri_pointer: uri_pointer.unwrap_or(plan.uri_pointer),
            tolerance_s: tolerance_s.unwrap_or(plan.tolerance_s),
            payload,
            expect_every_s,
            ..plan
        })
    }
}

/// Schemes that share no secret, as the sources file names them.
const WITHOUT_SECRETS: [&str; 2] = ["aws-sns", "google-pubsub"];

/// Each scheme with all that a plan of it may say, and nothing else: what editors complete from.
fn alone(schema: &mut Schema) {
    let (properties, required) = (schema.remove("properties"), schema.remove("required"));
    let Some(Value::Array(schemes)) = schema.get_mut("oneOf") else { return };
    for scheme in schemes.iter_mut().filter_map(Value::as_object_mut) {
        let name = scheme.get("properties").and_then(|own| own.pointer("/scheme/const")).and_then(Value::as_str);
        let has_secrets = !name.is_some_and(|name| WITHOUT_SECRETS.contains(&name));
        if let (Some(Value::Object(all)), Some(Value::Object(own))) = (&properties, scheme.get_mut("properties")) {
            own.extend(all.iter().filter(|(name, _)| has_secrets || *name != "secrets").map(|(name, of)| (name.clone(), of.clone())));
        }
        if let Some(Value::Array(own)) = scheme.get_mut("required") {
            own.extend(required.iter().filter_map(Value::as_array).flatten().cloned());
            own.extend(has_secrets.then(|| "secrets".into()));
        }
        scheme.insert("additionalProperties".into(), false.into());
    }
}

/// How far a time of signing may be off.
const TOLERANCE_S: u64 = 300;
/// How long SNS goes on sending one message.
const SNS_RETRIES_S: u64 = 3600;

/// How a provider proves that it is the sender. There is no scheme without a proof (I10).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", tag = "scheme")]
pub enum WebhookScheme {
    /// Standard Webhooks, also under Svix's header names: `v1` with a `whsec_…` secret, `v1a` with a `whpk_…` public key.
    StandardWebhooks,
    /// GitHub's `X-Hub-Signature-256`.
    Github,
    /// GitLab: a `whsec_…` secret is its signing token, any other one the secret token in `X-Gitlab-Token`.
    Gitlab,
    /// Stripe's `Stripe-Signature`, with its time of signing.
    Stripe,
    /// Slack's `X-Slack-Signature`, with its time of signing; answers `url_verification`.
    Slack,
    /// Shopify's `X-Shopify-Hmac-Sha256`.
    Shopify,
    /// ArcGIS's `x-esriHook-Signature`; answers its challenge-response check.
    Arcgis,
    /// Azure Event Grid in its own schema: the key is the parameter `code` of the URL; answers the validation event.
    AzureEventgrid,
    /// CloudEvents over HTTP webhooks: the key is a bearer token, or the parameter `access_token` of the URL.
    Cloudevents(CloudEventsScheme),
    /// AWS SNS: its signature, checked with the certificate that SNS publishes; confirms its subscription.
    AwsSns(AwsSnsScheme),
    /// Google Pub/Sub push: its OIDC token, checked with the keys that Google publishes.
    GooglePubsub(GooglePubsubScheme),
    /// Any other HMAC-SHA256 over the body.
    Hmac(HmacScheme),
}

impl WebhookScheme {
    /// Does the provider sign with a key pair of its own, so that there is no secret to share?
    pub fn is_published(&self) -> bool {
        matches!(self, Self::AwsSns(_) | Self::GooglePubsub(_))
    }
}

/// Where an HMAC-SHA256 is found and what it covers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub struct HmacScheme {
    /// The header with the signature.
    pub signature_header: String,
    /// What stands before the signature in that header, such as `sha256=`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub signature_prefix: String,
    /// How the signature is written.
    #[serde(default)]
    pub encoding: SignatureEncoding,
    /// What is signed: a template of `{id}`, `{timestamp}` and `{body}`. `{body}` alone if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signed: Option<String>,
    /// The header with the time of signing, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timestamp_header: Option<String>,
    /// The header with the delivery's id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id_header: Option<String>,
}

/// How a signature is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SignatureEncoding {
    /// Hex digits.
    #[default]
    Hex,
    /// Standard base64.
    Base64,
}

/// Who may ask whether CloudEvents are wanted here, and how many are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub struct CloudEventsScheme {
    /// The senders whose OPTIONS handshake is granted, such as `eventgrid.azure.net`. None of them if left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allowed_origins: Vec<String>,
    /// Most deliveries in a minute that are granted; no limit if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_per_minute: Option<u32>,
}

impl WebhookPlan {
    /// The plan of `scheme` with everything else as its provider has it.
    pub fn new(scheme: WebhookScheme, secrets: Vec<String>) -> Self {
        let tolerance_s = if matches!(scheme, WebhookScheme::AwsSns(_)) { SNS_RETRIES_S + TOLERANCE_S } else { TOLERANCE_S };
        let uri_pointer = layout(&scheme).uri.to_owned();
        Self { scheme, secrets, uri_pointer, payload: PayloadMap::default(), tolerance_s, expect_every_s: None }
    }

    /// Every reason why this plan cannot be registered. None of them repeats a secret.
    pub(crate) fn wrongs(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        if self.scheme.is_published() && !self.secrets.is_empty() {
            wrong.push("`secrets` are for schemes in which a secret is shared: this provider signs with a key of its own".into());
        }
        if self.secrets.is_empty() && !self.scheme.is_published() {
            wrong.push("`webhook` needs at least one secret: without one every delivery is refused".into());
        }
        if self.secrets.len() > LIST_ITEMS_MAX {
            wrong.push(format!("`webhook` takes at most {LIST_ITEMS_MAX} secrets"));
        }
        if self.secrets.iter().any(|secret| !SECRET_SCHEMES.iter().any(|scheme| secret.starts_with(scheme))) {
            wrong.push("a webhook secret is written as env:NAME, file:PATH or secretsmanager:NAME, never in the file itself".into());
        }
        if !is_pointer(&self.uri_pointer) {
            wrong.push("`uri_pointer` is a JSON pointer and starts with /".into());
        }
        wrong.extend(self.payload.wrongs());
        match &self.scheme {
            WebhookScheme::AwsSns(scheme) => wrong.extend(scheme.wrongs()),
            WebhookScheme::GooglePubsub(scheme) => wrong.extend(scheme.wrongs()),
            WebhookScheme::Hmac(scheme) => wrong.extend(scheme.wrongs()),
            WebhookScheme::Cloudevents(scheme) => wrong.extend(scheme.wrongs()),
            WebhookScheme::StandardWebhooks
            | WebhookScheme::Github
            | WebhookScheme::Gitlab
            | WebhookScheme::Stripe
            | WebhookScheme::Slack
            | WebhookScheme::Shopify
            | WebhookScheme::Arcgis
            | WebhookScheme::AzureEventgrid => {}
        }
        wrong
    }
}

impl WebhookScheme {
    /// Does it take settings of its own?
    fn takes_settings(&self) -> bool {
        match self {
            WebhookScheme::Hmac(_) | WebhookScheme::Cloudevents(_) | WebhookScheme::AwsSns(_) | WebhookScheme::GooglePubsub(_) => true,
            WebhookScheme::StandardWebhooks
            | WebhookScheme::Github
            | WebhookScheme::Gitlab
            | WebhookScheme::Stripe
            | WebhookScheme::Slack
            | WebhookScheme::Shopify
            | WebhookScheme::Arcgis
            | WebhookScheme::AzureEventgrid => false,
        }
    }
}

impl HmacScheme {
    fn wrongs(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        let signed = self.signed.as_deref().unwrap_or("{body}");
        if !signed.contains("{body}") {
            wrong.push("`signed` must contain {body}, or anybody could send another one".into());
        }
        if signed.contains("{timestamp}") != self.timestamp_header.is_some() {
            wrong.push("`timestamp_header` and {timestamp} in `signed` belong together".into());
        }
        if signed.contains("{id}") && self.id_header.is_none() {
            wrong.push("{id} in `signed` needs `id_header`".into());
        }
        wrong
    }
}

impl CloudEventsScheme {
    fn wrongs(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        if self.allowed_origins.len() > LIST_ITEMS_MAX {
            wrong.push(format!("`allowed_origins` takes at most {LIST_ITEMS_MAX} items"));
        }
        // They are sent back in a header; `*` would invite everybody (I10).
        let is_name = |name: &String| {
            let is_letter = |b: u8| b.is_ascii_alphanumeric() || b == b'.' || b == b'-' || b == b'_';
            !name.is_empty() && name.len() <= ORIGIN_BYTES_MAX && name.bytes().all(is_letter)
        };
        if !self.allowed_origins.iter().all(is_name) {
            wrong.push("`allowed_origins` are names such as eventgrid.azure.net, without scheme, port or *".into());
        }
        if self.rate_per_minute == Some(0) {
            wrong.push("`rate_per_minute` must be above zero".into());
        }
        wrong
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn plan(mut written: serde_json::Value) -> WebhookPlan {
        written["secrets"] = json!(["env:S"]);
        serde_json::from_value(written).unwrap()
    }

    #[test]
    fn what_is_left_out_comes_from_the_scheme_and_what_is_written_stays() {
        for (scheme, pointer) in [
            ("standard-webhooks", "/source_uri"),
            ("github", "/source_uri"),
            ("gitlab", "/source_uri"),
            ("stripe", "/source_uri"),
            ("slack", "/source_uri"),
            ("shopify", "/source_uri"),
            ("arcgis", "/source_uri"),
            ("azure-eventgrid", "/data/url"),
            ("cloudevents", "/data/url"),
        ] {
            let short = plan(json!({ "scheme": scheme }));
            assert_eq!((short.uri_pointer.as_str(), short.tolerance_s), (pointer, 300), "{scheme}");
            assert!(short.wrongs().is_empty(), "{scheme}");
            let stored = serde_json::to_value(&short).unwrap();
            assert_eq!(serde_json::from_value::<WebhookPlan>(stored).unwrap(), short, "{scheme}");
            assert_eq!(plan(json!({ "scheme": scheme, "uri_pointer": "" })).uri_pointer, "", "{scheme}");
        }
        assert!(serde_json::from_value::<WebhookPlan>(json!({ "scheme": "none", "secrets": ["env:S"] })).is_err());
    }

    #[test]
    fn what_a_scheme_does_not_take_is_refused() {
        for (scheme, wrong) in
            [("github", "tolerance"), ("github", "signature_header"), ("hmac", "rate_per_minute"), ("cloudevents", "orgins")]
        {
            let mut written = json!({ "scheme": scheme, "secrets": ["env:S"], wrong: "x" });
            if scheme == "hmac" {
                written["signature_header"] = "x-sig".into();
            }
            let error = serde_json::from_value::<WebhookPlan>(written).unwrap_err().to_string();
            assert!(error.contains(&format!("`{wrong}`")), "{scheme}: {error}");
        }
    }

    #[test]
    fn no_scheme_can_be_registered_without_a_secret() {
        for scheme in ["standard-webhooks", "github", "gitlab", "stripe", "slack", "shopify", "arcgis", "azure-eventgrid", "cloudevents"] {
            let none: WebhookPlan = serde_json::from_value(json!({ "scheme": scheme, "secrets": [] })).unwrap();
            assert!(none.wrongs().join(" ").contains("at least one secret"), "{scheme}");
        }
    }

    #[test]
    fn only_names_are_origins() {
        let wrongs = |origins: serde_json::Value, rate: u32| {
            plan(json!({ "scheme": "cloudevents", "allowed_origins": origins, "rate_per_minute": rate })).wrongs().len()
        };
        assert_eq!(wrongs(json!(["eventgrid.azure.net", "a-b_c.example"]), 120), 0);
        for bad in [json!(["*"]), json!([""]), json!(["https://a.example"]), json!(["a.example:443"]), json!(["a\r\nx: y"])] {
            assert_eq!(wrongs(bad.clone(), 1), 1, "{bad}");
        }
        assert_eq!(wrongs(json!(vec!["a.example"; LIST_ITEMS_MAX + 1]), 0), 2);
    }
}
