//! The laws: what the comments on the ports and the invariants promise, one function for each promise.
//!
//! An adapter's test file names a way to make a fresh adapter, and gets one test for each law:
//!
//! ```ignore
//! tidemark_conformance::ledger_laws!(async {
//!     let dir = tempfile::tempdir().unwrap();
//!     (Arc::new(SqliteLedger::open(dir.path()).unwrap()), dir) // the second is kept until the end
//! });
//! ```

pub mod artifacts;
pub mod claims;
pub mod commits;
pub mod dead_letters;
pub mod feed;
pub mod heads;
pub mod intake;
pub mod queue;
pub mod replay_log;
pub mod sources;
pub mod streams;

/// One test for each named law of a module.
#[macro_export]
macro_rules! laws {
    ($module:ident, $make:expr, $($law:ident),+ $(,)?) => { $(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $law() {
            let (port, _kept) = $make.await;
            $crate::laws::$module::$law(&port).await;
        }
    )+ };
}

/// Tests a [`Ledger`](tidemark_pipeline::ports::Ledger): takes a future of `(Arc<adapter>, kept)`.
#[macro_export]
macro_rules! ledger_laws {
    ($make:expr) => {
        mod ledger_laws {
            #[allow(unused_imports)]
            use super::*;
            $crate::laws!(
                claims,
                $make,
                a_step_is_held_by_one_claimant_at_a_time,
                the_same_claimant_gets_the_same_token_again,
                a_takeover_raises_the_token_and_keeps_what_was_frozen,
                a_lost_claim_is_not_given_back_to_its_first_claimant,
                a_claim_given_back_is_granted_at_once,
                a_stale_token_cannot_give_back_a_claim,
                a_claim_from_another_revision_is_refused,
                a_decided_identity_cannot_be_claimed,
                a_decision_can_be_lifted,
                one_of_many_concurrent_claims_wins,
                a_claim_that_ran_out_is_stuck_until_it_is_settled,
                the_ledger_tells_how_far_a_step_has_come,
            );
            $crate::laws!(
                commits,
                $make,
                a_commit_moves_record_head_and_change_together,
                a_stale_token_cannot_commit,
                a_token_that_was_never_given_cannot_commit,
                a_claim_given_back_cannot_commit,
                a_lease_that_ran_out_still_commits_if_nobody_took_over,
                a_commit_recognises_itself_after_a_lost_reply,
                a_commit_recognises_itself_even_after_later_revisions,
                a_late_failure_does_not_undo_a_commit,
                a_commit_on_a_moved_head_changes_nothing,
                a_decision_recorded_meanwhile_blocks_the_commit,
                one_of_many_rival_commits_wins,
                many_copies_of_one_commit_make_one_change,
                an_upstream_that_returns_to_old_bytes_makes_three_changes,
                a_deletion_leaves_a_head_without_bytes,
            );
            $crate::laws!(
                heads,
                $make,
                an_entity_never_seen_is_absent_at_revision_0,
                many_heads_are_read_as_each_is,
                a_confirmation_replaces_the_validators_and_not_the_head,
                a_confirmation_stops_older_bytes_in_flight,
                a_confirmation_of_another_revision_changes_nothing,
                an_entity_without_a_head_can_be_confirmed,
                the_order_never_decreases,
                orders_compare_as_numbers_and_not_as_text,
                decisions_are_kept_for_one_identity_of_one_entity,
                absence_can_be_withheld,
                history_is_told_from_the_oldest,
                entities_are_told_in_order_page_by_page,
            );
            $crate::laws!(
                feed,
                $make,
                a_change_has_no_index_until_it_is_placed,
                changes_get_the_next_indexes_in_the_order_given,
                a_place_after_another_end_changes_nothing,
                a_place_is_all_or_nothing,
                a_change_is_not_placed_before_its_predecessor,
                a_repeated_place_answers_as_it_did,
                unpublished_changes_come_in_an_order_that_can_be_placed,
                the_feed_is_read_in_pages_both_ways_and_by_source,
                a_change_is_found_by_every_name,
                the_feed_has_no_gaps_while_writers_publishers_and_a_reader_go_on,
            );
        }
    };
}

/// Tests a [`ReplayLog`](tidemark_pipeline::ports::ReplayLog): takes a future of `(Arc<adapter>, kept)`.
#[macro_export]
macro_rules! replay_log_laws {
    ($make:expr) => {
        mod replay_log_laws {
            #[allow(unused_imports)]
            use super::*;
            $crate::laws!(
                replay_log,
                $make,
                an_append_is_there_and_waits,
                an_event_that_is_there_already_is_left_as_it_is,
                a_hint_is_seen_only_after_it_was_marked,
                the_first_event_of_a_hint_stands,
                copies_are_counted,
                a_hint_expires_and_can_be_marked_again,
                a_forgotten_hint_passes,
                the_first_settled_outcome_stands,
                a_dead_candidate_can_still_be_settled,
                an_unknown_event_cannot_be_settled,
                observations_of_a_hint_come_oldest_first,
                recent_observations_come_newest_first,
                a_waiting_candidate_leaves_its_source_undecided,
                a_dead_candidate_leaves_its_source_failing_until_its_entity_is_settled,
                a_settled_entity_does_not_excuse_a_dead_neighbour,
                a_tally_counts_every_outcome,
                concurrent_appends_are_all_there_once,
            );
        }
    };
}

/// Tests an [`ArtifactStore`](tidemark_pipeline::ports::ArtifactStore): takes a future of `(Arc<adapter>, kept)`.
#[macro_export]
macro_rules! artifact_store_laws {
    ($make:expr) => {
        mod artifact_store_laws {
            #[allow(unused_imports)]
            use super::*;
            $crate::laws!(
                artifacts,
                $make,
                promoted_bytes_stream_back_as_they_were,
                an_empty_object_is_an_object,
                bytes_that_were_never_promoted_are_not_there,
                staged_bytes_are_seen_by_nobody,
                discarded_bytes_leave_nothing,
                a_promotion_can_be_repeated,
                many_promotions_of_the_same_bytes_at_once_all_succeed,
                stagings_with_one_label_do_not_mix,
                a_wrong_size_is_refused,
                a_wrong_digest_is_refused,
                documents_are_found_by_their_key,
                a_document_that_is_there_stays_as_it_is,
            );
        }
    };
}

/// Tests [`Sources`](tidemark_pipeline::ports::Sources) with [`Streams`](tidemark_pipeline::streams::Streams): takes a future of `(Arc<adapter>, kept)`.
#[macro_export]
macro_rules! sources_laws {
    ($make:expr) => {
        mod sources_laws {
            #[allow(unused_imports)]
            use super::*;
            $crate::laws!(
                sources,
                $make,
                applying_says_what_it_did,
                applying_twice_changes_nothing,
                only_pruning_removes,
                sources_are_listed_by_id,
                a_new_source_is_due_at_once,
                a_source_without_a_poll_plan_is_never_due,
                a_due_source_is_handed_to_one_poller,
                a_lease_that_ran_out_is_handed_out_again,
                a_saved_look_decides_when_the_next_one_is_due,
                what_the_poller_remembers_is_kept,
                a_source_that_is_gone_is_not_remembered,
                a_limit_leaves_the_rest_due,
                many_looks_are_remembered_at_once,
                many_pollers_get_each_due_source_once,
            );
            $crate::laws!(
                streams,
                $make,
                a_stream_is_followed_by_one,
                where_a_stream_stands_is_kept,
                a_changed_source_is_taken_from_who_follows_it,
                many_followers_get_each_stream_once,
            );
        }
    };
}

/// Tests a [`WorkQueue`](tidemark_pipeline::ports::WorkQueue): takes a future of `(Arc<adapter>, kept)`,
/// and an async closure that receives and acknowledges all that is in a `&adapter`.
#[macro_export]
macro_rules! work_queue_laws {
    ($make:expr, $drain:expr) => {
        mod work_queue_laws {
            #[allow(unused_imports)]
            use super::*;
            $crate::work_queue_laws!(
                @each $make, $drain,
                what_was_enqueued_is_received,
                nothing_enqueued_is_nothing_received,
                two_messages_of_one_sighting_are_both_handled,
                many_writers_lose_nothing,
            );
        }
    };
    (@each $make:expr, $drain:expr, $($law:ident),+ $(,)?) => { $(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $law() {
            let (port, _kept) = $make.await;
            $crate::laws::queue::$law(&port, $drain).await;
        }
    )+ };
}

/// Tests [`DeadLetters`](tidemark_pipeline::ports::DeadLetters): takes a future of `(Arc<adapter>, kept)`, an async
/// closure `(&adapter, &WorkMessage, &Fault, Timestamp)` that makes a message die, and one that receives and
/// acknowledges all that waits in a `&adapter`.
#[macro_export]
macro_rules! dead_letter_laws {
    ($make:expr, $die:expr, $drain:expr) => {
        mod dead_letter_laws {
            #[allow(unused_imports)]
            use super::*;
            $crate::dead_letter_laws!(
                @each $make, $die, $drain,
                a_dead_letter_says_what_died_and_why,
                dead_letters_come_newest_first_and_by_source,
                a_redriven_message_is_received_again_and_dead_no_more,
                only_what_is_there_is_redriven,
                a_redriven_message_can_die_again,
            );
        }
    };
    (@each $make:expr, $die:expr, $drain:expr, $($law:ident),+ $(,)?) => { $(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $law() {
            let (port, _kept) = $make.await;
            $crate::laws::dead_letters::$law(&port, $die, $drain).await;
        }
    )+ };
}

/// Tests a [`Door`](intake::Door): takes a future of `(Arc<door>, kept)`.
#[macro_export]
macro_rules! intake_laws {
    ($make:expr) => {
        mod intake_laws {
            #[allow(unused_imports)]
            use super::*;
            $crate::laws!(
                intake,
                $make,
                what_is_accepted_is_in_the_log_and_in_the_queue,
                a_copy_is_stopped_and_counted_until_its_hint_expires,
                without_a_hint_every_sighting_is_accepted,
                copies_that_come_at_once_are_all_accounted_for,
            );
        }
    };
}
