// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The functions that fail: counters, metrics, sampling, and others that need the GPU's own tools.

use std::ffi::c_int;

use gpgpu_protocol::cupti::NOT_SUPPORTED;

/// Reports that a function is unsupported, when the first such function is called.
fn say(function: &str) {
    let why = format!("serves activities and callbacks alone in this VM: {function} fails");
    gpgpu_client::log::refuse("CUPTI", &why);
}

/// Exports functions that always return the same value: `refuse! { type = value; name name … }`.
macro_rules! refuse {
    ($type:ty = $value:expr; $($name:ident)*) => {$(
        /// Only returns this value.
        #[unsafe(no_mangle)]
        pub extern "C" fn $name() -> $type {
            say(stringify!($name));
            $value
        }
    )*};
}

// Zero means failure for these functions: NVTX continues without them.
refuse! { c_int = 0;
    InitializeInjectionNvtx InitializeInjectionNvtx2 InitializeInjectionNvtxExtension
}

refuse! { u32 = NOT_SUPPORTED;
    cuptiActivityConfigurePCSampling cuptiActivityConfigureUnifiedMemoryCounter
    cuptiActivityDisable_v2 cuptiActivityEnableAllSyncRecords cuptiActivityEnableAllocationSource
    cuptiActivityEnableAndDump cuptiActivityEnableAndDump_v2 cuptiActivityEnableBufferSummary
    cuptiActivityEnableDeviceGraph cuptiActivityEnableDriverApi_v2 cuptiActivityEnableHWTrace
    cuptiActivityEnableLaunchAttributes cuptiActivityEnableRawTimestamps
    cuptiActivityEnableRawTimestamps_v2 cuptiActivityEnableRuntimeApi_v2 cuptiActivityEnable_v2
    cuptiActivityGetAttribute_v2 cuptiActivityGetEnabledKinds cuptiActivityGetNextRecord_v2
    cuptiActivityGetNumDroppedRecords_v2 cuptiActivityGetNvtxExtPayloadAttr
    cuptiActivityGetNvtxExtPayloadEntryTypeInfo cuptiActivityGetStructSize
    cuptiActivityPopExternalCorrelationId_v2 cuptiActivityPushExternalCorrelationId_v2
    cuptiActivityRegisterCallbacks_v2 cuptiActivitySetAttribute_v2 cuptiClockControlGetStatus
    cuptiClockControlLock cuptiClockControlUnlock cuptiDeviceEnumEventDomains cuptiDeviceEnumMetrics
    cuptiDeviceGetAttribute cuptiDeviceGetChipName cuptiDeviceGetEventDomainAttribute
    cuptiDeviceGetNumEventDomains cuptiDeviceGetNumMetrics cuptiDeviceVirtualizationMode
    cuptiDisableKernelReplayMode cuptiDisableLibcuda cuptiDisableNonOverlappingMode
    cuptiEnableCigMode cuptiEnableKernelReplayMode cuptiEnableNonOverlappingMode
    cuptiEnumEventDomains cuptiEnumMetrics cuptiEventDomainEnumEvents cuptiEventDomainGetAttribute
    cuptiEventDomainGetNumEvents cuptiEventGetAttribute cuptiEventGetIdFromName
    cuptiEventGroupAddEvent cuptiEventGroupCreate cuptiEventGroupDestroy cuptiEventGroupDisable
    cuptiEventGroupEnable cuptiEventGroupGetAttribute cuptiEventGroupReadAllEvents
    cuptiEventGroupReadEvent cuptiEventGroupRemoveAllEvents cuptiEventGroupRemoveEvent
    cuptiEventGroupResetAllEvents cuptiEventGroupSetAttribute cuptiEventGroupSetDisable
    cuptiEventGroupSetEnable cuptiEventGroupSetsCreate cuptiEventGroupSetsDestroy
    cuptiGetAutoBoostState cuptiGetCubinCrc cuptiGetEnabledCallbacks
    cuptiGetGlobalCallbackState cuptiGetNumContexts cuptiGetNumEventDomains cuptiGetNumMetrics cuptiGetRecommendedBufferSize
    cuptiGetSassToSourceCorrelation cuptiGetTimestamp_v2 cuptiIsTracingSessionRunning
    cuptiKernelReplaySubscribeUpdate cuptiMetricCreateEventGroupSets cuptiMetricEnumEvents
    cuptiMetricEnumProperties cuptiMetricGetAttribute cuptiMetricGetIdFromName
    cuptiMetricGetNumEvents cuptiMetricGetNumProperties cuptiMetricGetRequiredEventGroupSets
    cuptiMetricGetValue cuptiMetricGetValue2 cuptiNvtxExtensionInitialize cuptiNvtxInitialize
    cuptiNvtxInitialize2 cuptiOpenACCInitialize cuptiOpenMpInitialize cuptiOpenMpInitialize_v2
    cuptiPCSamplingDisable cuptiPCSamplingEnable cuptiPCSamplingGetConfigurationAttribute
    cuptiPCSamplingGetData cuptiPCSamplingGetNumStallReasons cuptiPCSamplingGetStallReasons
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
    cuptiProfilerHostGetNumOfPasses cuptiProfilerHostGetRangeName cuptiProfilerHostGetSinglePassSets
    cuptiProfilerHostGetSubMetrics cuptiProfilerHostGetSupportedChips cuptiProfilerHostInitialize
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
    cuptiSassMetricsUnsetConfig cuptiSetEventCollectionMode cuptiStateQuery
}
