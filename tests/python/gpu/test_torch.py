# SPDX-License-Identifier: BSD-2-Clause
"""The package with PyTorch, CuPy, Numba and JAX on real GPUs: pytest tests/python/gpu, with the package in PYTHONPATH.

Not a part of `make test`, which needs no GPU: benchmarks/machine runs it.
"""
import asyncio
import concurrent.futures
import os
import socket
import subprocess
import sys
import textwrap
import threading
import time

import peerlane as pl
import pytest
from conftest import connected
from peerlane import aio

torch = pytest.importorskip('torch')
if not torch.cuda.is_available():
    pytest.skip('no GPU', allow_module_level=True)

FABRICS = ['local', 'tcp']
two_gpus = pytest.mark.skipif(torch.cuda.device_count() < 2, reason='needs two GPUs')


@pytest.fixture(params=FABRICS)
def pair(request):
    with connected(request.param) as made:
        yield made


def pattern(size, device='cuda:0', seed=1):
    generator = torch.Generator(device=device).manual_seed(seed)
    return torch.randint(0, 256, (size,), dtype=torch.uint8, device=device, generator=generator)


def send(pair, source, target, **options):
    """Write one tensor's memory into the other's and return the receipt."""
    torch.cuda.synchronize()
    near, far = pair.near.register(source, access='rw'), pair.far.register(target, access='rw')
    with near, far:
        return pair.peer.write(pair.peer.import_(far.share()), near, visible='gpu-visible', timeout=20, **options)


# -- tensors -------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize('dtype', [torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.bool, torch.complex64,
                                   torch.float8_e4m3fn, torch.float8_e5m2], ids=str)
def test_all_types_of_tensors(pair, dtype):
    source = pattern(1 << 20).bitwise_and_(1).view(dtype) if dtype == torch.bool else pattern(1 << 20).view(dtype)
    target = torch.zeros(1 << 20, dtype=torch.uint8, device='cuda').view(dtype)
    receipt = send(pair, source, target)
    assert receipt.bytes == 1 << 20
    assert torch.equal(source.view(torch.uint8), target.view(torch.uint8))


def test_a_view_registers_its_own_bytes_only(pair):
    source, target = pattern(4096).view(64, 64), torch.zeros(64, 64, dtype=torch.uint8, device='cuda')
    with pair.far.register(target[3:5], access='rw') as region:
        assert region.length == 128
        assert region.address == target.data_ptr() + 192
        assert region.memory.startswith('cuda')
    send(pair, source[8:10], target[3:5])
    assert torch.equal(target[3:5], source[8:10])
    assert target[:3].count_nonzero() == 0 and target[5:].count_nonzero() == 0


@pytest.mark.parametrize('make', [lambda t: t[:, ::2], lambda t: t[:, 5:9], lambda t: t.expand(2, 64, 64)],
                         ids=['steps', 'columns', 'expanded'])
def test_views_with_gaps_are_refused(pair, make):
    with pytest.raises(pl.BufferRefused) as caught:
        pair.near.register(make(torch.zeros(64, 64, device='cuda')))
    assert caught.value.id == 'PY-CONTIGUOUS'


def test_a_transposed_view_is_refused(pair):
    """A peer would read the elements in another order than the tensor shows them."""
    with pytest.raises(pl.BufferRefused) as caught:
        pair.near.register(torch.zeros(64, 32, device='cuda').t())
    assert caught.value.id == 'PY-ORDER'


def test_a_parameter_needs_detach(pair):
    parameter = torch.nn.Parameter(torch.zeros(1024, device='cuda'))
    with pytest.raises(pl.BufferRefused) as caught:
        pair.near.register(parameter)
    assert caught.value.id == 'PY-DLPACK' and 'detach' in caught.value.hint
    with pair.near.register(parameter.detach()) as region:
        assert region.address == parameter.data_ptr()


def test_a_registered_tensor_outlives_its_name(pair):
    source, target = pattern(1 << 22), torch.zeros(1 << 22, dtype=torch.uint8, device='cuda')
    copy = source.clone()
    torch.cuda.synchronize()
    near, far = pair.near.register(source), pair.far.register(target, access='rw')
    del source
    torch.cuda.empty_cache()
    other = [torch.full((1 << 22,), 7, dtype=torch.uint8, device='cuda') for _ in range(8)]
    torch.cuda.synchronize()
    with near, far:
        pair.peer.write(pair.peer.import_(far.share()), near, visible='gpu-visible', timeout=20)
    assert torch.equal(target, copy) and len(other) == 8


def test_empty_and_odd_lengths(pair):
    source, target = pattern(12347), torch.zeros(12347, dtype=torch.uint8, device='cuda')
    send(pair, source[1:12346], target[1:12346])
    assert torch.equal(target[1:12346], source[1:12346]) and target[0] == 0 and target[12346] == 0


@two_gpus
def test_from_one_gpu_to_the_other(pair):
    source, target = pattern(1 << 24), torch.zeros(1 << 24, dtype=torch.uint8, device='cuda:1')
    for device in range(2):
        torch.cuda.synchronize(device)
    receipt = send(pair, source, target)
    assert torch.equal(source.cpu(), target.cpu())
    assert receipt.bytes_direct == (1 << 24 if receipt.fabric == 'local' else 0)


def test_between_host_and_gpu(pair):
    source, target = torch.arange(1 << 20, dtype=torch.uint8), torch.zeros(1 << 20, dtype=torch.uint8, device='cuda')
    send(pair, source, target)
    assert torch.equal(source, target.cpu())
    pinned = torch.zeros(1 << 20, dtype=torch.uint8).pin_memory()
    send(pair, target, pinned)
    assert torch.equal(source, pinned)


@pytest.mark.parametrize('freed', ['source', 'target'])
def test_a_tensor_whose_storage_is_freed_while_registered(pair, freed):
    """64 MiB have a segment of their own, which empty_cache() gives back to CUDA."""
    tensors = {name: torch.zeros(1 << 26, dtype=torch.uint8, device='cuda') for name in ('source', 'target')}
    torch.cuda.synchronize()
    near, far = pair.near.register(tensors['source']), pair.far.register(tensors['target'], access='rw')
    remote = pair.peer.import_(far.share())
    pair.peer.write(remote, near, visible='gpu-visible', timeout=20)
    tensors[freed].untyped_storage().resize_(0)
    torch.cuda.empty_cache()
    with pytest.raises(pl.Error) as caught:
        pair.peer.write(remote, near, visible='gpu-visible', timeout=20)
    assert caught.value.id and not isinstance(caught.value, TimeoutError)
    with pytest.raises(pl.Error):
        pair.near.register(tensors[freed])
    near.deregister()
    far.deregister()
    # The connection and the GPU are in use as before.
    source, target = pattern(1 << 20), torch.zeros(1 << 20, dtype=torch.uint8, device='cuda')
    send(pair, source, target)
    assert torch.equal(source, target)


# -- CUDA streams --------------------------------------------------------------------------------------------------

def test_a_write_waits_for_a_stream(pair):
    source, target = torch.zeros(1 << 20, dtype=torch.int32, device='cuda'), torch.zeros(1 << 20, dtype=torch.int32,
                                                                                      device='cuda')
    near, far = pair.near.register(source), pair.far.register(target, access='rw')
    remote = pair.peer.import_(far.share())
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    for value in range(1, 6):
        with torch.cuda.stream(stream):
            torch.cuda._sleep(20_000_000)    # about 10 ms
            source.fill_(value)
        pair.peer.write(remote, near, stream=stream, visible='gpu-visible', timeout=20)
        assert int(target[-1]) == value and int(target[0]) == value
    near.deregister()
    far.deregister()


def test_a_write_without_a_stream_does_not_wait(pair):
    """The control of the case above: the kernel still runs, and the write has moved the bytes before it."""
    source, target = torch.zeros(1 << 20, dtype=torch.int32, device='cuda'), torch.ones(1 << 20, dtype=torch.int32,
                                                                                     device='cuda')
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    with pair.near.register(source) as near, pair.far.register(target, access='rw') as far:
        remote = pair.peer.import_(far.share())
        pair.peer.write(remote, near, visible='gpu-visible', timeout=20)    # the first one registers
        with torch.cuda.stream(stream):
            torch.cuda._sleep(2_000_000_000)    # about 1 s
            source.fill_(7)
        pair.peer.write(remote, near, visible='gpu-visible', timeout=20)
        assert not stream.query(), 'the write took longer than the kernel'
        back = bytearray(4)
        far.copy_out(back)
        assert back == bytes(4)
        pair.peer.write(remote, near, stream=stream, visible='gpu-visible', timeout=20)
        assert stream.query() and int(target[-1]) == 7


def test_asyncio_with_tensors():
    async def run():
        async with aio.Context(fabric='local') as near, aio.Context(fabric='local') as far:
            listener = far.listen()
            accepted = listener.accept()
            peer = await near.connect(listener.address)
            await accepted
            source, target = pattern(1 << 20), torch.zeros(1 << 20, dtype=torch.uint8, device='cuda')
            torch.cuda.synchronize()
            with near.register(source) as here, far.register(target, access='rw') as there:
                remote = await peer.import_(there.share())
                writes = [peer.write(remote, here, at, at, 4096) for at in range(0, 1 << 20, 4096)]
                await asyncio.gather(*writes)
            assert torch.equal(source, target)
    asyncio.run(run())


# -- memory of Peerlane --------------------------------------------------------------------------------------------

def test_a_region_is_a_tensor(pair):
    with pair.far.allocate(1 << 20, 'cuda', access='rw') as region:
        tensor = torch.from_dlpack(region)
        assert tensor.device.type == 'cuda' and tensor.numel() == 1 << 20
        source = pattern(1 << 20)
        torch.cuda.synchronize()
        with pair.near.register(source) as near:
            pair.peer.write(pair.peer.import_(region.share()), near, visible='gpu-visible', timeout=20)
        assert torch.equal(tensor, source)
        del tensor


@pytest.mark.parametrize('memory', ['host', 'cuda'])
def test_frames_are_tensors(pair, memory):
    layout = pl.Layout((256, 256), 'float32')
    images = [torch.rand(256, 256, device='cuda') for _ in range(8)]
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    with pair.far.publish('images', layout, slots=16, memory=memory) as publisher, \
            pair.peer.subscribe('images', start='history', memory='cuda', queue=8, held=8) as subscriber:
        for image in images:
            frame = publisher.loan(5)
            with torch.cuda.stream(stream):
                torch.from_dlpack(frame).copy_(image, non_blocking=memory == 'cuda')
            if memory == 'cuda':
                frame.publish(stream=stream)
            else:
                stream.synchronize()
                frame.publish()
        for image in images:
            frame = subscriber.take(10)
            tensor = torch.from_dlpack(frame)
            assert tensor.shape == (256, 256) and tensor.dtype == torch.float32 and tensor.is_cuda
            assert torch.equal(tensor, image)
            del tensor
            frame.release()


def test_a_graph_is_captured_beside_transfers_of_another_thread(pair):
    """PyTorch captures in the mode "global": a call of another thread that allocates, registers or waits would spoil the graph."""
    source, target = pattern(1 << 20), torch.zeros(1 << 20, dtype=torch.uint8, device='cuda')
    value = torch.zeros(1 << 16, device='cuda')
    torch.cuda.synchronize()
    rounds, end = [], threading.Event()

    def transfer():
        while not end.is_set():
            with pair.near.register(source, access='rw') as near, pair.far.register(target, access='rw') as far:
                pair.peer.write(pair.peer.import_(far.share()), near, visible='gpu-visible', timeout=20)
            rounds.append(len(rounds))

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        other = pool.submit(transfer)
        try:
            for number in range(30):
                before = len(rounds)
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph):
                    value += 1
                    # A whole round of the other thread while the capture is open.
                    deadline = time.monotonic() + 20
                    while len(rounds) < before + 2 and not other.done() and time.monotonic() < deadline:
                        time.sleep(0.001)
                    value *= 1
                assert len(rounds) >= before + 2
                graph.replay()
                torch.cuda.synchronize()
                assert bool((value == number + 1).all())
        finally:
            end.set()
        other.result()
    assert torch.equal(source, target)


def test_the_package_lists_the_gpus():
    gpus = pl.gpus()
    assert len(gpus) == torch.cuda.device_count()
    for number, gpu in enumerate(gpus):
        assert gpu['name'] == torch.cuda.get_device_name(number)


# -- other libraries -----------------------------------------------------------------------------------------------

def test_cupy(pair):
    cupy = pytest.importorskip('cupy')
    source, target = cupy.arange(1 << 18, dtype=cupy.float32), cupy.zeros(1 << 18, dtype=cupy.float32)
    cupy.cuda.Device().synchronize()
    send(pair, source, target)
    assert bool((source == target).all())
    with pair.far.allocate(4096, 'cuda', access='rw') as region:
        array = cupy.asarray(region)
        array.fill(9)
        assert int(cupy.from_dlpack(region)[4095]) == 9
        del array


@two_gpus
def test_cupy_on_another_gpu(pair):
    cupy = pytest.importorskip('cupy')
    with cupy.cuda.Device(1):
        source, target = cupy.arange(1 << 18, dtype=cupy.float32), cupy.zeros(1 << 18, dtype=cupy.float32)
        cupy.cuda.Device().synchronize()
    send(pair, source, target)
    assert bool((source.get() == target.get()).all())


def test_numba(pair):
    cuda = pytest.importorskip('numba.cuda')
    source = cuda.to_device(torch.arange(4096, dtype=torch.int32).numpy())
    target = cuda.device_array(4096, dtype='int32')
    send(pair, source, target)
    assert (source.copy_to_host() == target.copy_to_host()).all()


def test_jax():
    code = textwrap.dedent('''
        import os
        os.environ['XLA_PYTHON_CLIENT_PREALLOCATE'] = 'false'
        import jax, numpy, peerlane as pl
        from conftest import connected
        source = jax.block_until_ready(jax.numpy.arange(1 << 18, dtype='float32'))
        with connected('local') as pair, pair.near.register(source) as near:
            with pair.far.allocate(1 << 20, 'cuda', access='rw') as far:
                pair.peer.write(pair.peer.import_(far.share()), near, visible='gpu-visible', timeout=20)
                assert numpy.array_equal(numpy.asarray(jax.dlpack.from_dlpack(far)).view('float32'), numpy.asarray(source))
        print('equal')
    ''')
    pytest.importorskip('jax')
    run_python(code)


# -- several processes ---------------------------------------------------------------------------------------------

def run_python(code, expected='equal', **environment):
    path = os.pathsep.join([os.path.dirname(os.path.dirname(__file__)), os.environ.get('PYTHONPATH', '')])
    done = subprocess.run([sys.executable, '-c', code], text=True, capture_output=True, timeout=120,
                          env=os.environ | {'PYTHONPATH': path} | environment)
    assert done.returncode == 0 and expected in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize('fabric', FABRICS)
def test_expandable_segments(fabric):
    run_python(textwrap.dedent(f'''
        import torch, peerlane as pl
        from conftest import connected
        source = torch.arange(1 << 20, dtype=torch.int32, device='cuda')
        target = torch.zeros(1 << 20, dtype=torch.int32, device='cuda')
        torch.cuda.synchronize()
        segments = torch.cuda.memory_snapshot()
        for tensor in (source, target):
            address = tensor.data_ptr()
            assert any(segment['is_expandable'] and 0 <= address - segment['address'] < segment['total_size']
                       for segment in segments), segments
        with connected('{fabric}') as pair, pair.near.register(source) as near, \\
                pair.far.register(target, access='rw') as far:
            receipt = pair.peer.write(pair.peer.import_(far.share()), near, visible='gpu-visible', timeout=20)
            print(receipt)
        assert torch.equal(source, target)
        print('equal')
    '''), PYTORCH_CUDA_ALLOC_CONF='expandable_segments:True')


RANK = textwrap.dedent('''
    import os, torch, torch.distributed as dist, peerlane as pl
    rank = int(os.environ['RANK'])
    torch.cuda.set_device(rank % torch.cuda.device_count())
    dist.init_process_group(os.environ['BACKEND'])
    size = dist.get_world_size()
    mine = torch.full((1 << 22,), rank + 1, dtype=torch.int32, device='cuda')
    inbox = torch.zeros(1 << 22, dtype=torch.int32, device='cuda')
    torch.cuda.synchronize()
    with pl.Context(fabric=os.environ.get('FABRIC', 'auto')) as context:
        with context.register(mine) as source, context.register(inbox, access='rw') as target:
            with pl.torch.exchange(None, context, target, rights='rw') as group:
                there = (rank + 1) % size
                member = group[there]
                receipt = member.peer.write(member.remote, source, visible='gpu-visible', timeout=20)
                dist.barrier()
                assert int(inbox[0]) == int(inbox[-1]) == (rank - 1) % size + 1
                print('equal', receipt.fabric, receipt.route, flush=True)
                dist.barrier()
    dist.destroy_process_group()
''')


@two_gpus
@pytest.mark.parametrize('backend', ['nccl', 'gloo'])
def test_exchange_of_a_process_group(backend):
    with socket.create_server(('127.0.0.1', 0)) as probe:
        port = str(probe.getsockname()[1])
    ranks = [subprocess.Popen([sys.executable, '-c', RANK], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              env=os.environ | {'RANK': str(rank), 'WORLD_SIZE': '2', 'MASTER_ADDR': '127.0.0.1',
                                                'MASTER_PORT': port, 'BACKEND': backend}) for rank in range(2)]
    outputs = []
    try:
        outputs = [rank.communicate(timeout=90)[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    assert [rank.returncode for rank in ranks] == [0, 0] and all('equal local' in text for text in outputs), outputs
