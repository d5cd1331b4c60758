// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! CUPTI: profiling and tracing. The traced work happens on the host, in the operator's driver.

use std::{
    ffi::{CStr, c_char, c_int, c_void},
    mem::MaybeUninit,
};

use libc::{Dl_info, dladdr};

use crate::refuse;

/// `CUPTI_SUCCESS`.
const SUCCESS: u32 = 0;
/// `CUPTI_ERROR_INVALID_PARAMETER`.
const INVALID_PARAMETER: u32 = 1;
/// `CUPTI_ERROR_NOT_SUPPORTED`.
const NOT_SUPPORTED: u32 = 27;

/// `CUptiResult` by its numbers.
const RESULTS: &[(u32, &CStr)] = &[
    (0, c"CUPTI_SUCCESS"),
    (1, c"CUPTI_ERROR_INVALID_PARAMETER"),
    (2, c"CUPTI_ERROR_INVALID_DEVICE"),
    (3, c"CUPTI_ERROR_INVALID_CONTEXT"),
    (4, c"CUPTI_ERROR_INVALID_EVENT_DOMAIN_ID"),
    (5, c"CUPTI_ERROR_INVALID_EVENT_ID"),
    (6, c"CUPTI_ERROR_INVALID_EVENT_NAME"),
    (7, c"CUPTI_ERROR_INVALID_OPERATION"),
    (8, c"CUPTI_ERROR_OUT_OF_MEMORY"),
    (9, c"CUPTI_ERROR_HARDWARE"),
    (10, c"CUPTI_ERROR_PARAMETER_SIZE_NOT_SUFFICIENT"),
    (11, c"CUPTI_ERROR_API_NOT_IMPLEMENTED"),
    (12, c"CUPTI_ERROR_MAX_LIMIT_REACHED"),
    (13, c"CUPTI_ERROR_NOT_READY"),
    (14, c"CUPTI_ERROR_NOT_COMPATIBLE"),
    (15, c"CUPTI_ERROR_NOT_INITIALIZED"),
    (16, c"CUPTI_ERROR_INVALID_METRIC_ID"),
    (17, c"CUPTI_ERROR_INVALID_METRIC_NAME"),
    (18, c"CUPTI_ERROR_QUEUE_EMPTY"),
    (19, c"CUPTI_ERROR_INVALID_HANDLE"),
    (20, c"CUPTI_ERROR_INVALID_STREAM"),
    (21, c"CUPTI_ERROR_INVALID_KIND"),
    (22, c"CUPTI_ERROR_INVALID_EVENT_VALUE"),
    (23, c"CUPTI_ERROR_DISABLED"),
    (24, c"CUPTI_ERROR_INVALID_MODULE"),
    (25, c"CUPTI_ERROR_INVALID_METRIC_VALUE"),
    (26, c"CUPTI_ERROR_HARDWARE_BUSY"),
    (27, c"CUPTI_ERROR_NOT_SUPPORTED"),
    (28, c"CUPTI_ERROR_UM_PROFILING_NOT_SUPPORTED"),
    (29, c"CUPTI_ERROR_UM_PROFILING_NOT_SUPPORTED_ON_DEVICE"),
    (31, c"CUPTI_ERROR_UM_PROFILING_NOT_SUPPORTED_WITH_MPS"),
    (32, c"CUPTI_ERROR_CDP_TRACING_NOT_SUPPORTED"),
    (33, c"CUPTI_ERROR_VIRTUALIZED_DEVICE_NOT_SUPPORTED"),
    (34, c"CUPTI_ERROR_CUDA_COMPILER_NOT_COMPATIBLE"),
    (35, c"CUPTI_ERROR_INSUFFICIENT_PRIVILEGES"),
    (36, c"CUPTI_ERROR_OLD_PROFILER_API_INITIALIZED"),
    (37, c"CUPTI_ERROR_OPENACC_UNDEFINED_ROUTINE"),
    (38, c"CUPTI_ERROR_LEGACY_PROFILER_NOT_SUPPORTED"),
    (39, c"CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED"),
    (
        40,
        c"CUPTI_ERROR_VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES",
    ),
    (41, c"CUPTI_ERROR_CONFIDENTIAL_COMPUTING_NOT_SUPPORTED"),
    (42, c"CUPTI_ERROR_CMP_DEVICE_NOT_SUPPORTED"),
    (43, c"CUPTI_ERROR_MIG_DEVICE_NOT_SUPPORTED"),
    (44, c"CUPTI_ERROR_SLI_DEVICE_NOT_SUPPORTED"),
    (45, c"CUPTI_ERROR_WSL_DEVICE_NOT_SUPPORTED"),
    (46, c"CUPTI_ERROR_INVALID_CHIP_NAME"),
    (47, c"CUPTI_ERROR_HES_TRACE_NOT_SUPPORTED_ON_MPS"),
    (999, c"CUPTI_ERROR_UNKNOWN"),
    (0, c"CUPTI_ERROR_FORCE_INT"),
];

/// `cuptiGetResultString`: a result's name.
///
/// # Safety
///
/// `str` is NULL or the caller's to write to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiGetResultString(result: u32, str: *mut *const c_char) -> u32 {
    let found = RESULTS.iter().find(|(number, _)| *number == result);
    let Some((_, name)) = found.filter(|_| !str.is_null()) else {
        return INVALID_PARAMETER;
    };
    // SAFETY: promised by the caller.
    unsafe { str.write(name.as_ptr()) };
    SUCCESS
}

/// `cuptiGetErrorMessage`: the result's name, too.
///
/// # Safety
///
/// As for [`cuptiGetResultString`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiGetErrorMessage(result: u32, str: *mut *const c_char) -> u32 {
    // SAFETY: promised by the caller.
    unsafe { cuptiGetResultString(result, str) }
}

/// `CUPTI_API_VERSION` of CUDA 12.0 and of CUDA 13.0, the first releases with these library names.
const VERSIONS: [(&[u8], u32); 2] = [(b"libcupti.so.12", 18), (b"libcupti.so.13", 130_000)];

/// `cuptiGetVersion`: the version of these functions. JAX calls it when it starts, and an error makes it report a
/// broken installation.
///
/// # Safety
///
/// `version` is NULL or the caller's to write to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiGetVersion(version: *mut u32) -> u32 {
    if version.is_null() {
        return INVALID_PARAMETER;
    }
    // SAFETY: promised by the caller, and not NULL.
    unsafe { version.write(version_of(&own_file())) };
    SUCCESS
}

/// The version for the file from which this code was loaded; for any other name, the newer one's.
pub(crate) fn version_of(file: &[u8]) -> u32 {
    let of = VERSIONS.iter().find(|(name, _)| file.ends_with(name));
    of.unwrap_or(&VERSIONS[1]).1
}

/// The path of the file from which this code was loaded; empty if the loader does not know it.
fn own_file() -> Vec<u8> {
    let mut found = MaybeUninit::<Dl_info>::zeroed();
    let here: unsafe extern "C" fn(*mut u32) -> u32 = cuptiGetVersion;
    // SAFETY: any address may be queried, and the structure is writable.
    if unsafe { dladdr(here as *const c_void, found.as_mut_ptr()) } == 0 {
        return Vec::new();
    }
    // SAFETY: all zero is a value of it, and the loader has filled it in.
    let name = unsafe { found.assume_init() }.dli_fname;
    if name.is_null() {
        return Vec::new();
    }
    // SAFETY: the loader's name of a file that stays loaded while its code runs.
    unsafe { CStr::from_ptr(name) }.to_bytes().to_vec()
}

// Zero means failure for these functions: NVTX continues without them.
refuse! { "CUPTI", c_int = 0;
    InitializeInjectionNvtx InitializeInjectionNvtx2 InitializeInjectionNvtxExtension
}

refuse! { "CUPTI", u32 = NOT_SUPPORTED;
    cuptiActivityConfigurePCSampling cuptiActivityConfigureUnifiedMemoryCounter
    cuptiActivityDisable cuptiActivityDisableContext cuptiActivityDisable_v2 cuptiActivityEnable
    cuptiActivityEnableAllSyncRecords cuptiActivityEnableAllocationSource
    cuptiActivityEnableAndDump cuptiActivityEnableAndDump_v2 cuptiActivityEnableBufferSummary
    cuptiActivityEnableContext cuptiActivityEnableCudaEventDeviceTimestamps
    cuptiActivityEnableDeviceGraph cuptiActivityEnableDriverApi cuptiActivityEnableDriverApi_v2
    cuptiActivityEnableHWTrace cuptiActivityEnableLatencyTimestamps
    cuptiActivityEnableLaunchAttributes cuptiActivityEnableRawTimestamps
    cuptiActivityEnableRawTimestamps_v2 cuptiActivityEnableRuntimeApi
    cuptiActivityEnableRuntimeApi_v2 cuptiActivityEnable_v2 cuptiActivityFlush
    cuptiActivityFlushAll cuptiActivityFlushPeriod cuptiActivityGetAttribute
    cuptiActivityGetAttribute_v2 cuptiActivityGetEnabledKinds cuptiActivityGetNextRecord
    cuptiActivityGetNextRecord_v2 cuptiActivityGetNumDroppedRecords
    cuptiActivityGetNumDroppedRecords_v2 cuptiActivityGetNvtxExtPayloadAttr
    cuptiActivityGetNvtxExtPayloadEntryTypeInfo cuptiActivityGetStructSize
    cuptiActivityPopExternalCorrelationId cuptiActivityPopExternalCorrelationId_v2
    cuptiActivityPushExternalCorrelationId cuptiActivityPushExternalCorrelationId_v2
    cuptiActivityRegisterCallbacks cuptiActivityRegisterCallbacks_v2
    cuptiActivityRegisterTimestampCallback cuptiActivitySetAttribute cuptiActivitySetAttribute_v2
    cuptiClockControlGetStatus cuptiClockControlLock cuptiClockControlUnlock
    cuptiComputeCapabilitySupported cuptiDeviceEnumEventDomains cuptiDeviceEnumMetrics
    cuptiDeviceGetAttribute cuptiDeviceGetChipName cuptiDeviceGetEventDomainAttribute
    cuptiDeviceGetNumEventDomains cuptiDeviceGetNumMetrics cuptiDeviceSupported
    cuptiDeviceVirtualizationMode cuptiDisableKernelReplayMode cuptiDisableLibcuda
    cuptiDisableNonOverlappingMode cuptiEnableAllDomains cuptiEnableCallback cuptiEnableCigMode
    cuptiEnableDomain cuptiEnableKernelReplayMode cuptiEnableNonOverlappingMode
    cuptiEnumEventDomains cuptiEnumMetrics cuptiEventDomainEnumEvents cuptiEventDomainGetAttribute
    cuptiEventDomainGetNumEvents cuptiEventGetAttribute cuptiEventGetIdFromName
    cuptiEventGroupAddEvent cuptiEventGroupCreate cuptiEventGroupDestroy cuptiEventGroupDisable
    cuptiEventGroupEnable cuptiEventGroupGetAttribute cuptiEventGroupReadAllEvents
    cuptiEventGroupReadEvent cuptiEventGroupRemoveAllEvents cuptiEventGroupRemoveEvent
    cuptiEventGroupResetAllEvents cuptiEventGroupSetAttribute cuptiEventGroupSetDisable
    cuptiEventGroupSetEnable cuptiEventGroupSetsCreate cuptiEventGroupSetsDestroy cuptiFinalize
    cuptiGetAutoBoostState cuptiGetCallbackName cuptiGetCallbackState cuptiGetContextId
    cuptiGetCubinCrc cuptiGetCudaEventId cuptiGetDeviceId cuptiGetEnabledCallbacks
    cuptiGetGlobalCallbackState cuptiGetGraphExecId cuptiGetGraphId cuptiGetGraphNodeId
    cuptiGetLastError cuptiGetNumContexts cuptiGetNumEventDomains cuptiGetNumMetrics
    cuptiGetRecommendedBufferSize cuptiGetSassToSourceCorrelation cuptiGetStreamId
    cuptiGetStreamIdEx cuptiGetThreadIdType cuptiGetTimestamp cuptiGetTimestamp_v2
    cuptiIsTracingSessionRunning cuptiKernelReplaySubscribeUpdate cuptiMetricCreateEventGroupSets
    cuptiMetricEnumEvents cuptiMetricEnumProperties cuptiMetricGetAttribute
    cuptiMetricGetIdFromName cuptiMetricGetNumEvents cuptiMetricGetNumProperties
    cuptiMetricGetRequiredEventGroupSets cuptiMetricGetValue cuptiMetricGetValue2
    cuptiNvtxExtensionInitialize cuptiNvtxInitialize cuptiNvtxInitialize2 cuptiOpenACCInitialize
    cuptiOpenMpInitialize cuptiOpenMpInitialize_v2 cuptiPCSamplingDisable cuptiPCSamplingEnable
    cuptiPCSamplingGetConfigurationAttribute cuptiPCSamplingGetData
    cuptiPCSamplingGetNumStallReasons cuptiPCSamplingGetStallReasons
    cuptiPCSamplingSetConfigurationAttribute cuptiPCSamplingStart cuptiPCSamplingStop
    cuptiPmSamplingCounterDataGetSampleInfo cuptiPmSamplingCounterDataImageInitialize
    cuptiPmSamplingDecodeData cuptiPmSamplingDisable cuptiPmSamplingEnable
    cuptiPmSamplingGetCounterAvailability cuptiPmSamplingGetCounterDataInfo
    cuptiPmSamplingGetCounterDataSize cuptiPmSamplingSetConfig cuptiPmSamplingStart
    cuptiPmSamplingStop cuptiProfilerBeginPass cuptiProfilerBeginSession
    cuptiProfilerCounterDataImageCalculateScratchBufferSize
    cuptiProfilerCounterDataImageCalculateSize cuptiProfilerCounterDataImageInitialize
    cuptiProfilerCounterDataImageInitializeScratchBuffer cuptiProfilerDeInitialize
    cuptiProfilerDeviceSupported cuptiProfilerDisableProfiling cuptiProfilerEnableProfiling
    cuptiProfilerEndPass cuptiProfilerEndSession cuptiProfilerFlushCounterData
    cuptiProfilerGetCounterAvailability cuptiProfilerHostConfigAddMetrics
    cuptiProfilerHostDeinitialize cuptiProfilerHostEvaluateToGpuValues
    cuptiProfilerHostGetBaseMetrics cuptiProfilerHostGetConfigImage
    cuptiProfilerHostGetConfigImageSize cuptiProfilerHostGetMaxNumHardwareMetricsPerPass
    cuptiProfilerHostGetMetricProperties cuptiProfilerHostGetMetricsInSinglePassSet
    cuptiProfilerHostGetNumOfPasses cuptiProfilerHostGetRangeName
    cuptiProfilerHostGetSinglePassSets cuptiProfilerHostGetSubMetrics
    cuptiProfilerHostGetSupportedChips cuptiProfilerHostInitialize
    cuptiProfilerHostSetDevicePartitionInfo cuptiProfilerInitialize cuptiProfilerIsPassCollected
    cuptiProfilerPopRange cuptiProfilerPushRange cuptiProfilerSetConfig cuptiProfilerUnsetConfig
    cuptiRangeProfilerCounterDataGetRangeInfo cuptiRangeProfilerCounterDataImageInitialize
    cuptiRangeProfilerDecodeData cuptiRangeProfilerDisable cuptiRangeProfilerEnable
    cuptiRangeProfilerGetCounterDataInfo cuptiRangeProfilerGetCounterDataSize
    cuptiRangeProfilerGetDevicePartitionInfo cuptiRangeProfilerPopRange cuptiRangeProfilerPushRange
    cuptiRangeProfilerSetConfig cuptiRangeProfilerStart cuptiRangeProfilerStop
    cuptiRegisterComputeCrcCallback cuptiSassMetricsDisable cuptiSassMetricsEnable
    cuptiSassMetricsFlushData cuptiSassMetricsGetDataProperties cuptiSassMetricsGetMetrics
    cuptiSassMetricsGetNumOfMetrics cuptiSassMetricsGetProperties cuptiSassMetricsSetConfig
    cuptiSassMetricsUnsetConfig cuptiSetEventCollectionMode cuptiSetThreadIdType cuptiStateQuery
    cuptiSubscribe cuptiSubscribe_v2 cuptiSupportedDomains cuptiUnsubscribe
}
