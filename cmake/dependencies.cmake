# What the build takes from elsewhere, and from where.

find_package(Python 3.11 COMPONENTS Interpreter Development.Module REQUIRED)

function(ask_python code result)
  execute_process(COMMAND ${CMAKE_COMMAND} -E env TORCH_DEVICE_BACKEND_AUTOLOAD=0 ${Python_EXECUTABLE} -c "${code}"
    OUTPUT_VARIABLE answer OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  set(${result} "${answer}" PARENT_SCOPE)
endfunction()

# torch is linked directly: PyPI's usual torch is a CUDA build, whose CMake package demands a CUDA toolkit.
ask_python("import torch, os; print(os.path.dirname(torch.__file__))" TORCH_DIR)
add_library(torch_direct INTERFACE)
target_include_directories(torch_direct SYSTEM INTERFACE
  ${TORCH_DIR}/include ${TORCH_DIR}/include/torch/csrc/api/include ${Python_INCLUDE_DIRS})
foreach(lib c10 torch_cpu torch_python)
  find_library(LIB_${lib} ${lib} PATHS ${TORCH_DIR}/lib NO_DEFAULT_PATH REQUIRED)
  target_link_libraries(torch_direct INTERFACE ${LIB_${lib}})
endforeach()

ask_python("import pybind11; print(pybind11.get_cmake_dir())" pybind11_DIR)
find_package(pybind11 CONFIG REQUIRED)

# oneDNN: the PyPI package beside us, or a system oneDNN 3.x.
execute_process(COMMAND ${Python_EXECUTABLE} -c "from importlib.metadata import files
print(*(file.locate().resolve().parent for file in files('onednn-devel-cpu-gomp') if file.name == 'dnnl-config.cmake'))"
  OUTPUT_VARIABLE pypi_dnnl_DIR OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(pypi_dnnl_DIR)
  set(dnnl_DIR ${pypi_dnnl_DIR})
endif()
find_package(dnnl 3 CONFIG REQUIRED)
get_target_property(dnnl_library DNNL::dnnl IMPORTED_LOCATION_RELEASE)
if(NOT dnnl_library)
  get_target_property(dnnl_library DNNL::dnnl LOCATION)
endif()
get_filename_component(dnnl_LIBRARY_DIR "${dnnl_library}" DIRECTORY)

# Highway: the system's, or one pinned release.
set(HIGHWAY_VERSION 1.2.0)
set(HIGHWAY_URL https://github.com/google/highway/archive/refs/tags/${HIGHWAY_VERSION}.tar.gz)
set(HIGHWAY_SHA256 7e0be78b8318e8bdbf6fa545d2ecb4c90f947df03f7aadc42c1967f019e63343)
find_package(hwy CONFIG QUIET)
if(NOT hwy_FOUND)
  include(FetchContent)
  set(archive ${CMAKE_BINARY_DIR}/highway-${HIGHWAY_VERSION}.tar.gz)
  if(NOT FETCHCONTENT_SOURCE_DIR_HIGHWAY AND NOT EXISTS ${archive})
    message(STATUS "No Highway on this system: downloading ${HIGHWAY_URL}")
    file(DOWNLOAD ${HIGHWAY_URL} ${archive} STATUS status)
    list(GET status 0 failed)
    if(failed)
      list(GET status 1 reason)
      file(REMOVE ${archive})
      message(FATAL_ERROR "Highway is not installed, and its download failed (${reason}). "
        "Install it (Debian and Ubuntu: apt-get install libhwy-dev), "
        "or unpack ${HIGHWAY_URL} and pass -DFETCHCONTENT_SOURCE_DIR_HIGHWAY=FOLDER to CMake.")
    endif()
  endif()
  set(HWY_ENABLE_TESTS OFF)
  set(HWY_ENABLE_EXAMPLES OFF)
  set(HWY_ENABLE_CONTRIB OFF)
  set(HWY_ENABLE_INSTALL OFF)
  set(BUILD_SHARED_LIBS OFF)
  FetchContent_Declare(highway URL ${archive} URL_HASH SHA256=${HIGHWAY_SHA256} DOWNLOAD_EXTRACT_TIMESTAMP ON)
  FetchContent_MakeAvailable(highway)
  if(NOT TARGET hwy::hwy)
    add_library(hwy::hwy ALIAS hwy)
  endif()
  set(hwy_VERSION ${HIGHWAY_VERSION})
endif()

find_package(OpenMP REQUIRED COMPONENTS CXX)
message(STATUS "torch ${TORCH_DIR}; Highway ${hwy_VERSION}; oneDNN ${dnnl_VERSION}; OpenMP ${OpenMP_CXX_VERSION}")
