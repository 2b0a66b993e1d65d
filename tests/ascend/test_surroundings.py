"""The parts of a dry run that need no device and no compiler: always tested."""

from __future__ import annotations

import shutil
import subprocess
from collections import Counter

import pytest

import standins
import surroundings
from graphs import graph_files, read_graphs, read_launches

GRAPH = """\
%para1_fc.weight: <Ref[Tensor[Float32]], (2, 2), ref_key=fc.weight>  :  IsWeight: true
subgraph @kernel_graph1() {
  %0(equiv_1) = Load(%para1_fc.weight, UMonad[U]) primitive_attrs: {visited: Bool(1)}
      : (<Ref[Tensor[Float32]]>) -> (<Tensor[Float32]>)
  %1(equiv_2) = PrimFunc_MatMul(%para2_x, %0, Bool(0)) primitive_attrs: {stream_id: U32(0)}
  %2(CNode_3) = AllReduce(%1) {instance name: all_reduce} primitive_attrs: {op: "sum"}
  %3(CNode_4) = ApplyMomentum(%para3_head.weight, %para4_moments.head.weight, %2)
  %4(CNode_5) = UpdateState(UMonad[U], %para1_fc.weight)
"""
ORDER = """\
index,node_name,logic_id,stream_id,node_info,event_id,group
"1","Default/Assign-op0","1","0","@graph:a{[0]: Assign, [1]: b}","",""
"2","Default/GetNext-op0","1","0","@graph:a","",""
"3","Default/net/AllReduce-op11","1","0","@graph:a","",""
"4","Default/GetNext-op0","1","0","@graph:a","",""
"""


@pytest.fixture
def no_tools(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("ASCEND_HOME_PATH", raising=False)


def test_a_missing_compiler_is_an_error_that_says_what_to_install(no_tools, tmp_path):
    with pytest.raises(
        standins.NoStandInsError,
        match=r"^gcc, g\+\+, nm, readelf not found, .*apt install binutils g\+\+ gcc\)",
    ):
        surroundings.prepare(tmp_path)


def test_a_wheel_without_the_plugin_is_an_error(tmp_path):
    with pytest.raises(standins.NoStandInsError, match="holds no Ascend plugin; use the wheel for"):
        standins.plugin_files(tmp_path)


def test_a_symbol_becomes_a_function_and_the_data_of_a_class_memory():
    source = standins.c_source(["aclInit", "aclCreateTensor", "aclrtGetSocName", "_ZTIN2ge4NodeE"])
    assert '__asm__("aclInit");' in source
    assert "{ return 0; }" in source
    assert "{ return (long)memory; }" in source
    assert '{ return (long)"Ascend910B1"; }' in source
    assert 'char d0[4096] __asm__("_ZTIN2ge4NodeE") = {0};' in source


def test_what_has_a_body_of_its_own_is_not_made_twice():
    assert standins.c_source(standins.HAVE_A_BODY) == standins.c_source([])


def test_a_path_is_put_before_what_is_there_and_other_variables_stand_alone(monkeypatch, tmp_path):
    monkeypatch.setenv("LD_LIBRARY_PATH", "/old")
    monkeypatch.setenv("ASCEND_HOME_PATH", "/broken")
    monkeypatch.setenv("RANK_SIZE", "1")
    variables = {"LD_LIBRARY_PATH": "/new", "ASCEND_HOME_PATH": "/stand-ins"}
    given = surroundings.environment(variables, tmp_path)
    assert given["LD_LIBRARY_PATH"] == "/new:/old"
    assert given["ASCEND_HOME_PATH"] == "/stand-ins"
    assert given["RANK_SIZE"] == "8"
    assert given["MS_SIMULATION_LEVEL"] == "1"


def test_a_program_that_fails_is_an_error_with_what_it_said(tmp_path):
    with pytest.raises(surroundings.DryRunError, match=r"nowhere\.py x ended with 2:\n.*No such"):
        surroundings.dry_run("nowhere.py", "x", variables={}, folder=tmp_path)


def test_a_graph_holds_its_kernels_and_what_they_write(tmp_path):
    file = tmp_path / "graph_build_0_0001.ir"
    file.write_text(GRAPH)
    graph = read_graphs([file])
    assert graph.operators == Counter(MatMul=1, AllReduce=1, ApplyMomentum=1)
    assert graph.kernels == 3
    assert graph.written == {"x", "head.weight", "moments.head.weight"}


def test_graphs_come_in_the_order_in_which_they_were_built(tmp_path):
    (tmp_path / "rank_0").mkdir()
    for name in ("graph_build_1_0936.ir", "graph_build_0_0417.ir", "graph_build_2_10001.ir"):
        (tmp_path / "rank_0" / name).touch()
    (tmp_path / "other_0_0001.ir").touch()
    assert [file.name[:13] for file in graph_files(tmp_path)] == [
        "graph_build_0",
        "graph_build_1",
        "graph_build_2",
    ]


def test_launches_are_counted_from_each_first_kernel_on(tmp_path):
    (tmp_path / "execute_order.csv").write_text(ORDER)
    assert read_launches(tmp_path, "GetNext") == [
        Counter(GetNext=1, AllReduce=1),
        Counter(GetNext=1),
    ]


def test_the_script_names_the_tools_that_are_missing_before_it_installs_anything(tmp_path):
    bash, dirname = (shutil.which(name) for name in ("bash", "dirname"))
    assert bash
    assert dirname
    (tmp_path / "dirname").symlink_to(dirname)
    script = str(surroundings.ROOT / "scripts" / "ascend_dry_run.sh")
    done = subprocess.run(
        [bash, script], env={"PATH": str(tmp_path)}, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "not found: gcc g++ nm readelf; install a compiler" in done.stderr
