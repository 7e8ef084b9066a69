"""What vendors' tools print. None of it was taken from a machine of ours; each says where its form was read."""

from __future__ import annotations

ASCEND_INFO = """\
+------------------------------------------------------------------------------------------------+
| npu-smi 24.1.rc1.b030            Version: 24.1.rc1.b030                                        |
+---------------------------+---------------+----------------------------------------------------+
| NPU   Name                | Health        | Power(W)    Temp(C)           Hugepages-Usage(page)|
| Chip                      | Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)        |
+===========================+===============+====================================================+
| 0     910B3               | OK            | 101.8       43                0    / 0             |
| 0                         | 0000:C1:00.0  | 7           0    / 0          3318 / 65536         |
+===========================+===============+====================================================+
| 4     910B3               | Alarm         | NA          39                0    / 0             |
| 0                         | 0000:C2:00.0  | 0           0    / 0          59356/ 65536         |
+===========================+===============+====================================================+
+---------------------------+---------------+----------------------------------------------------+
| NPU     Chip              | Process id    | Process name             | Process memory(MB)      |
+===========================+===============+====================================================+
| 0       0                 | 1             | sglangschedul            | 3100                    |
+===========================+===============+====================================================+
| No running processes found in NPU 4                                                            |
+===========================+===============+====================================================+
"""
"""From documentation: the NPU guide of ms-swift (modelscope/ms-swift) for the tables, which print a 910B3 at rest."""

ASCEND_MAP = """\
NPU ID                         Chip ID                        Chip Logic ID                  Chip Name
0                              0                              0                              Ascend 910B3
0                              1                              -                              Mcu
4                              0                              1                              Ascend 910B3
"""
"""From documentation: "Energy Consumption" of Ascend's msit (`npu-smi info -m`)."""

ASCEND_TOPOLOGY = """\
       NPU0       NPU1       CPU Affinity
NPU0       X          HCCS       144-167
NPU1       HCCS       X          144-167

Legend:

  X    = Self
  HCCS = Connection traversing HCCS.
"""
"""From documentation: the NPU guide of ms-swift (`npu-smi info -t topo`), cut to two chips."""

HYGON = """\
================================= System Management Interface ==================================
================================================================================================
HCU     Temp     AvgPwr     Perf     PwrCap     VRAM%      HCU%      Dec%      Enc%      Mode
0       50.0C    511.0W     auto     1000.0W    98%        97.5%     0.0%      0.0%      Normal
1       N/A      89.0W      auto     1000.0W    0%         0.0%      0.0%      0.0%      Normal
================================================================================================
======================================== End of SMI Log ========================================
"""
"""From documentation: outputs of DTK 26.04 in public guides; older tools head the columns DCU."""

HYGON_OLD = """\
============================ System Management Interface =============================
DCU     Temp     AvgPwr     Perf     PwrCap     VRAM%      DCU%      Mode
0       42.0C    39.0W      auto     280.0W     0%         34%       Normal
======================================================================================
"""
"""From documentation: outputs of DTK 23 and 24 in public guides."""

HYGON_MEMORY = """\
HCU[0]          : vram Total Memory (MiB): 65520
HCU[0]          : vram Total Used Memory (MiB): 51920
HCU[1]          : vram Total Memory (MiB): 65520
HCU[1]          : vram Total Used Memory (MiB): 0
"""
HYGON_PRODUCTS = """\
HCU[0]          : Card Series:           BW1000
HCU[1]          : Card Series:           BW1000
"""
"""Both from documentation: outputs quoted in public guides for `--showmeminfo vram` and the product list."""

CAMBRICON = """\
Wed Nov  8 16:16:45 2023
+------------------------------------------------------------------------------+
| CNMON v5.10.22                                               Driver v5.10.22 |
+-------------------------------+----------------------+-----------------------+
| Card  VF  Name       Firmware |               Bus-Id | Util        Ecc-Error |
| Fan   Temp      Pwr:Usage/Cap |         Memory-Usage | Mode     Compute-Mode |
|===============================+======================+=======================|
| 0     /   MLU370-X8    v1.1.6 |         0000:13:00.0 | 45%                 0 |
|  0%   28C        107 W/ 250 W |  1024 MiB/ 20638 MiB | FULL          Default |
+-------------------------------+----------------------+-----------------------+
| 1     /   MLU370-X8    v1.1.6 |         0000:16:00.0 | N/A               N/A |
|  0%   32C        106 W/ 250 W |     0 MiB/ 20638 MiB | FULL          Default |
+-------------------------------+----------------------+-----------------------+
"""
"""From documentation: PaddlePaddle's installation guide for MLU, with figures for a busy card."""

INTEL_LIST = """\
{"device_list": [
  {"device_id": 0, "device_name": "Intel(R) Data Center GPU Max 1550", "device_type": "GPU",
   "pci_bdf_address": "0000:4d:00.0", "uuid": "00000000-0000-0000-8abc-a5690bd58086"}
]}
"""
INTEL_DEVICE = """\
{"device_id": 0, "device_name": "Intel(R) Data Center GPU Max 1550", "driver_version": "1.3.27191",
 "memory_physical_size_byte": "68719476736"}
"""
INTEL_STATS = """\
{"device_id": 0, "device_level": [
  {"metrics_type": "XPUM_STATS_POWER", "value": 412.5},
  {"metrics_type": "XPUM_STATS_GPU_UTILIZATION", "value": 37.5},
  {"metrics_type": "XPUM_STATS_MEMORY_USED", "value": 1024.4},
  {"metrics_type": "XPUM_STATS_GPU_CORE_TEMPERATURE", "value": 48.0}
]}
"""
"""All three from documentation: the XPU Manager guide (intel.github.io/xpumanager), commands discovery and stats."""

AMD_LIST = """\
WARNING: User is missing the following required groups: render
[{"gpu": 0, "bdf": "0000:05:00.0", "uuid": "26ff74a1-0000-1000-80da-fac08ba4d3b8"},
 {"gpu": 1, "bdf": "0000:26:00.0", "uuid": "2fff74a1-0000-1000-8068-a4e0d7c4ae1e"}]
"""
AMD_ASIC = """\
[{"gpu": 0, "asic": {"market_name": "AMD Instinct MI300X", "vendor_id": "0x1002"}},
 {"gpu": 1, "asic": {"market_name": "AMD Instinct MI300X", "vendor_id": "0x1002"}}]
"""
AMD_METRIC = """\
{"gpu_data": [
 {"gpu": 0,
  "usage": {"gfx_activity": {"value": 73, "unit": "%"}, "umc_activity": {"value": 12, "unit": "%"}},
  "power": {"socket_power": {"value": 542, "unit": "W"}, "throttle_status": "UNTHROTTLED"},
  "temperature": {"edge": "N/A", "hotspot": {"value": 61, "unit": "C"}, "mem": {"value": 58, "unit": "C"}},
  "mem_usage": {"total_vram": {"value": 196592, "unit": "MB"}, "used_vram": {"value": 49148, "unit": "MB"}},
  "energy": {"total_energy_consumption": {"value": 9000.5, "unit": "J"}}},
 {"gpu": 1, "usage": "N/A", "power": {"socket_power": "N/A"},
  "mem_usage": {"total_vram": {"value": 196592, "unit": "MB"}}}
]}
"""
AMD_PROCESSES = """\
[{"gpu": 0, "process_list": [{"process_info": {"name": "python", "pid": 1,
   "memory_usage": {"gtt_mem": {"value": 0, "unit": "B"}, "vram_mem": {"value": 2147483648, "unit": "B"}}}}]},
 {"gpu": 1, "process_list": [{"process_info": "No running processes detected"}]}]
"""
AMD_TOPOLOGY = """\
[{"gpu": 0, "links": [{"gpu": 0, "link_type": "SELF"}, {"gpu": 1, "link_type": "XGMI", "num_hops": 1}]},
 {"gpu": 1, "links": [{"gpu": 0, "link_type": "XGMI", "num_hops": 1}, {"gpu": 1, "link_type": "SELF"}]}]
"""
"""All five from documentation: the AMD SMI CLI guide (rocm.docs.amd.com/projects/amdsmi), whose JSON has the names of
its text in small letters; versions differ in whether the list is wrapped."""
