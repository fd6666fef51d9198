//! Finds a deployed stack by its name: what it consists of is read from its outputs, so that a person names one
//! thing only. Whatever is missing on the way (region, credentials, the stack) is said with what to do about it.

use std::collections::HashMap;

use aws_config::{BehaviorVersion, SdkConfig};
use aws_sdk_cloudformation::Client;
use aws_sdk_cloudformation::config::ProvideCredentials;
use aws_sdk_cloudformation::config::http::HttpResponse;
use aws_sdk_cloudformation::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_cloudformation::operation::describe_stacks::DescribeStacksError;
use tidemark_aws::StackNames;
use tidemark_domain::Fault;

/// A deployed stack.
pub(crate) struct Stack {
    /// How to reach AWS.
    pub(crate) config: SdkConfig,
    /// What the stack consists of.
    pub(crate) names: StackNames,
    /// Where providers call it.
    pub(crate) api_url: String,
}

impl Stack {
    /// Reads the outputs of the stack `name`, with region, credentials and endpoint of the AWS environment.
    pub(crate) async fn find(name: &str) -> Result<Self, Fault> {
        let config = aws_config::load_defaults(BehaviorVersion::latest()).await;
        let Some(region) = config.region().map(ToString::to_string) else {
            return Err(Fault::rejected("stack.no_region", "no AWS region is set, so there is no place to look for the stack")
                .remedy("set AWS_REGION, or AWS_PROFILE to a profile that has a region"));
        };
        check_credentials(&config).await?;
        let described = Client::new(&config).describe_stacks().stack_name(name).send().await;
        let described = described.map_err(|error| undescribed(name, &region, &error))?;
        let stack = described.stacks.unwrap_or_default().pop().ok_or_else(|| unknown(name, &region))?;
        let outputs: HashMap<String, String> =
            stack.outputs.unwrap_or_default().into_iter().filter_map(|output| Some((output.output_key?, output.output_value?))).collect();
        let names = StackNames::from(|setting| outputs.get(&output_key(setting)).cloned()).map_err(|fault| Fault {
            message: format!("the outputs of stack `{name}` are not those of this version: {}", fault.message),
            ..fault
        })?;
        Ok(Self { config, names, api_url: outputs.get("ApiUrl").cloned().unwrap_or_default() })
    }
}

/// Asked for before the first call, where a missing one can be told from a refused one.
async fn check_credentials(config: &SdkConfig) -> Result<(), Fault> {
    let found = match config.credentials_provider() {
        Some(provider) => provider.provide_credentials().await.is_ok(),
        None => false,
    };
    if found {
        return Ok(());
    }
    Err(Fault::rejected(
        "stack.no_credentials",
        "no usable AWS credentials were found in the environment, the profile or the machine's role",
    )
    .remedy("set AWS_PROFILE (and `aws sso login`), or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"))
}

fn undescribed(name: &str, region: &str, error: &SdkError<DescribeStacksError, HttpResponse>) -> Fault {
    match error.as_service_error().and_then(ProvideErrorMetadata::code) {
        // What CloudFormation says of a name that it does not know.
        Some("ValidationError") => unknown(name, region),
        Some(code @ ("AccessDenied" | "AccessDeniedException")) => {
            Fault::permanent("stack.denied", format!("these AWS credentials may not look at stack `{name}`: {code}"))
                .remedy("use credentials that may call cloudformation:DescribeStacks on it")
        }
        Some(
            code @ ("ExpiredToken"
            | "ExpiredTokenException"
            | "InvalidClientTokenId"
            | "SignatureDoesNotMatch"
            | "UnrecognizedClientException"),
        ) => Fault::permanent("stack.credentials", format!("AWS does not accept these credentials: {code}"))
            .remedy("log in again (`aws sso login`), or check AWS_PROFILE, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"),
        Some(code) => Fault::retryable("stack.failed", format!("CloudFormation could not describe stack `{name}`: {code}")),
        None => Fault::retryable("stack.unreachable", format!("CloudFormation in {region} does not answer"))
            .remedy("check the network, AWS_REGION and AWS_ENDPOINT_URL"),
    }
}

fn unknown(name: &str, region: &str) -> Fault {
    Fault::rejected("stack.unknown", format!("there is no stack `{name}` in {region}"))
        .remedy("check the name, AWS_REGION and AWS_PROFILE, or deploy it with `make deploy`")
}

/// The output for a setting: `LedgerTable` for `LEDGER_TABLE`.
fn output_key(setting: &str) -> String {
    let word = |word: &str| word.chars().take(1).chain(word.to_lowercase().chars().skip(1)).collect::<String>();
    setting.split('_').map(word).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_has_its_output() {
        let settings = ["LEDGER_TABLE", "REPLAY_TABLE", "SOURCES_TABLE", "QUEUE_URL", "DEAD_LETTER_URL", "BUCKET"];
        let outputs = ["LedgerTable", "ReplayTable", "SourcesTable", "QueueUrl", "DeadLetterUrl", "Bucket"];
        assert_eq!(settings.map(output_key), outputs);
    }
}
