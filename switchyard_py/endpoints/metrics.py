"""What is counted, for monitoring and for people. Neither answer waits for a disk, an engine or other requests."""

from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from starlette.requests import Request
from starlette.responses import Response

from switchyard_py.endpoints.answers import answer
from switchyard_py.services import Services
from switchyard_py.stats import statistics


async def metrics(request: Request) -> Response:
    """GET and HEAD /metrics: all counts and gauges, of all workers, in the text format of Prometheus."""
    services: Services = request.state.services
    services.sampler.look()
    exposition = await services.counting.run(services.metrics.exposition)
    return Response(exposition, headers={"content-type": CONTENT_TYPE_PLAIN_0_0_4})


async def stats(request: Request) -> Response:
    """GET and HEAD /v1/stats: the same in short, as JSON."""
    services: Services = request.state.services
    services.sampler.look()
    return answer(await services.counting.run(_statistics, services))


def _statistics(services: Services) -> dict[str, object]:
    return statistics(services.metrics.families(), services.table.routes)
