#pragma once

#include "plans/document.h"
#include "plans/hardware.h"
#include "plans/job.h"
#include "plans/job_reader.h"

namespace shardplan {

/// The job that a document describes, every field checked. Without `hardware` the job must be a
/// resolved one, as job_to_json writes it: GPU and network in full. Throws InputError.
Job job_from(const Node& document, const Hardware* hardware, ModelNeed need = ModelNeed::Required,
             JobUse use = JobUse::Run);

}  // namespace shardplan
